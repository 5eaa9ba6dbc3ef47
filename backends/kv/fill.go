package kv

import (
	"context"
	"errors"

	"github.com/tenure-go/tenure/core/driver"
)

// These constants limit the number of missing chunks that are read. If a watch leaves out more
// chunks, readers are reset and catch up with ReadLog.
const (
	maxFilledShards = 16  // in one call
	maxFilledChunks = 256 // of one shard
)

// fill reads the chunks that a watch left out, and adds them to the changes. A watch may deliver
// only the last of a shard's new chunks, or report the deletion of a chunk that was already trimmed
// or never written. Each shard with a gap takes one read.
func (b *Backend) fill(ctx context.Context, changes []Change) ([]Change, error) {
	all := make([]Change, 0, len(changes))
	at := make(map[driver.ShardID]driver.Seq)
	reads := 0
	for _, c := range changes {
		shard, last, ok := b.keys.SplitChunk(c.Key)
		if !ok {
			continue
		}
		prev, known := at[shard]
		if !known {
			prev = b.tail.at(shard)
		}
		if last <= prev {
			continue
		}
		if c.follows(prev, last) || reads == maxFilledShards {
			at[shard] = last
			all = append(all, c)
			continue
		}
		reads++
		before, written, err := b.missing(ctx, shard, c, prev, last)
		if err != nil {
			return nil, err
		}
		if written {
			at[shard] = last
			all = append(append(all, before...), c)
		}
	}
	return all, nil
}

// missing reads the chunks between entry prev and the change's chunk, which ends with entry last.
// For a deleted chunk, missing only determines whether the chunk was ever written.
func (b *Backend) missing(ctx context.Context, shard driver.ShardID, c Change,
	prev, last driver.Seq) (before []Change, written bool, err error) {
	if c.Deleted {
		head, err := b.head(ctx, shard)
		if errors.Is(err, driver.ErrDamaged) {
			return nil, true, nil
		}
		return nil, err == nil && head.Seq >= last, err // otherwise its commit was refused
	}
	found, err := b.chunks(ctx, shard, prev+1, last-1, maxFilledChunks)
	for _, p := range found {
		if p.Key < c.Key {
			before = append(before, Change{Key: p.Key, Value: p.Value, Rev: p.Rev})
		}
	}
	return before, err == nil, err
}

// follows reports whether the change's chunk directly follows entry prev. For an undecodable chunk,
// the result is also true, because reading it again would not help.
func (c *Change) follows(prev, last driver.Seq) bool {
	if c.Deleted {
		return false
	}
	head, _, reason := chunkHead(c.Value, last)
	return reason != "" || last-driver.Seq(head[2]) <= prev
}

func (t *tail) at(shard driver.ShardID) driver.Seq {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.last[shard]
}

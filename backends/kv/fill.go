package kv

import (
	"context"
	"errors"

	"github.com/tenure-go/tenure/core/driver"
)

// Bounds of what is read for chunks that a watch did not tell. Beyond them readers
// are reset, and catch up with ReadLog.
const (
	maxFilledShards = 16  // in one call
	maxFilledChunks = 256 // of one shard
)

// fill completes watched chunks from the logs. A watch may leave out all but the
// last of a shard's, or tell of one as deleted that was trimmed before it could be
// read, or was never written. Each shard with a hole costs one read, and no hole
// none.
func (b *Backend) fill(ctx context.Context, changes []Change) ([]Change, error) {
	all := make([]Change, 0, len(changes))
	at := make(map[driver.ShardID]driver.Seq)
	reads := 0
	for _, c := range changes {
		shard, last, ok := b.keys.splitChunk(c.Key)
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
		if c.Deleted {
			head, err := b.head(ctx, shard)
			if err != nil && !errors.Is(err, ErrCorrupt) {
				return nil, err
			}
			if err == nil && head.Seq < last {
				continue // its commit was refused
			}
		} else {
			found, err := b.chunks(ctx, shard, prev+1, last-1, maxFilledChunks)
			if err != nil {
				return nil, err
			}
			for _, p := range found {
				if p.Key < c.Key {
					all = append(all, Change{Key: p.Key, Value: p.Value, Rev: p.Rev})
				}
			}
		}
		at[shard] = last
		all = append(all, c)
	}
	return all, nil
}

// follows reports whether the change is the chunk that comes after entry prev, or
// one that cannot be read, for which nothing can be done.
func (c *Change) follows(prev, last driver.Seq) bool {
	if c.Deleted {
		return false
	}
	head, _, reason := chunkHead(c.Value, last)
	return reason != "" || last-driver.Seq(head[2]) <= prev
}

// at is the last entry seen of a shard.
func (t *tail) at(shard driver.ShardID) driver.Seq {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.last[shard]
}

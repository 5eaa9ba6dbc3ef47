package kv

import (
	"context"
	"errors"
	"slices"
	"sort"
	"strings"
	"sync"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/kvkeys"
	"github.com/tenure-go/tenure/internal/kvrecord"
)

// These constants limit the entries kept for readers of TailLog. A reader that is further behind is
// reset, and then catches up with ReadLog.
const (
	maxTailBytes  = 8 << 20
	maxTailChunks = 16 << 10
)

// tail keeps the latest entries of all shards, in the store's order, from the first call of
// TailLog.
type tail struct {
	keys kvkeys.Keys

	mu      sync.Mutex
	opening chan struct{} // has one token; its holder may open the tail
	ready   bool          // heads were read
	rev     Rev           // every chunk up to this revision has arrived
	seq     int64         // of the latest chunk
	floor   int64         // chunks up to this number are dropped
	chunks  []tailChunk
	bytes   int
	last    map[driver.ShardID]driver.Seq // last entry seen of each shard
	changed chan struct{}                 // closed by the next change; nil if no call waits
	run     *run
}

type tailChunk struct {
	chunk
	seq   int64
	bytes int
}

func (t *tail) init(keys kvkeys.Keys) {
	t.keys = keys
	t.opening = make(chan struct{}, 1)
}

func (t *tail) wake() {
	t.mu.Lock()
	t.wakeLocked()
	t.mu.Unlock()
}

func (t *tail) wakeLocked() {
	if t.changed != nil {
		close(t.changed)
		t.changed = nil
	}
}

// TailLog waits for entries of any shard. See driver.Backend.
func (b *Backend) TailLog(ctx context.Context, since driver.Cursor, limit int) (*driver.TailPage, error) {
	t := &b.tail
	seq, ok := b.position(since)
	for {
		if err := b.readable(ctx); err != nil {
			return nil, err
		}
		r, err := b.openTail(ctx)
		if err != nil {
			return nil, err
		}
		t.mu.Lock()
		if !ok || seq < t.floor || seq > t.seq {
			now := t.seq
			t.mu.Unlock()
			return b.resetTail(ctx, now)
		}
		page := &driver.TailPage{}
		page.Entries, seq = t.after(seq, limit)
		if len(page.Entries) > 0 {
			t.mu.Unlock()
			page.Cursor = b.cursor(seq)
			return page, nil
		}
		if t.changed == nil {
			t.changed = make(chan struct{})
		}
		changed := t.changed
		err = b.readable(ctx) // under the lock, because each later reason to return closes a channel
		t.mu.Unlock()
		if err != nil {
			return nil, err
		}
		select {
		case <-changed:
		case <-r.done:
			return nil, b.readError(r.err)
		case <-ctx.Done():
		case <-b.life.Done():
		}
	}
}

// resetTail returns a page with all heads, read no earlier than position seq. An entry that is
// counted in a head may therefore also be in the tail.
func (b *Backend) resetTail(ctx context.Context, seq int64) (*driver.TailPage, error) {
	found, err := b.store.Range(ctx, Range{Prefix: b.keys.Heads(), Largest: kvrecord.MaxLen})
	if err != nil {
		return nil, b.readError(err)
	}
	page := &driver.TailPage{Reset: true, Cursor: b.cursor(seq)}
	for _, p := range found.Pairs {
		shard := driver.ShardID(strings.Clone(strings.TrimPrefix(p.Key, b.keys.Heads())))
		if head, err := decodeHead(p); err == nil && driver.CheckShard(shard) == nil {
			page.Heads = append(page.Heads, driver.ShardHead{Shard: shard, Head: head})
		}
	}
	return page, nil
}

// openTail starts the log watch unless it is already running.
func (b *Backend) openTail(ctx context.Context) (*run, error) {
	t := &b.tail
	select {
	case t.opening <- struct{}{}:
		defer func() { <-t.opening }()
	case <-ctx.Done():
		return nil, b.readError(ctx.Err())
	case <-b.life.Done():
		return nil, errClosed()
	}
	t.mu.Lock()
	r, ready, from := t.run, t.ready, t.rev
	t.mu.Unlock()
	if r.alive() {
		return r, nil
	}
	if !ready {
		if err := b.loadTail(ctx); err != nil {
			return nil, err
		}
		t.mu.Lock()
		from = t.rev
		t.mu.Unlock()
	}
	r, err := b.start(func(ctx context.Context, _ *run) error {
		for {
			err := b.store.Watch(ctx, []string{b.keys.Logs()}, from, func(rev Rev, changes []Change) error {
				changes, err := b.fill(ctx, changes)
				if err == nil {
					t.follow(rev, changes)
				}
				return err
			})
			if !errors.Is(err, ErrCompacted) {
				return err
			}
			if err := b.loadTail(ctx); err != nil {
				return err
			}
			t.mu.Lock()
			from = t.rev
			t.mu.Unlock()
		}
	})
	if err != nil {
		return nil, err
	}
	t.mu.Lock()
	t.run = r
	t.mu.Unlock()
	return r, nil
}

// loadTail restarts the tail at the current heads, so every reader is reset.
func (b *Backend) loadTail(ctx context.Context) error {
	t := &b.tail
	t.mu.Lock()
	floor := t.rev
	t.mu.Unlock()
	found, err := b.store.Range(ctx, Range{Prefix: b.keys.Heads(), Largest: kvrecord.MaxLen})
	if err != nil {
		return b.readError(err)
	}
	last := make(map[driver.ShardID]driver.Seq, len(found.Pairs))
	for _, p := range found.Pairs {
		if head, err := decodeHead(p); err == nil {
			last[driver.ShardID(strings.Clone(strings.TrimPrefix(p.Key, b.keys.Heads())))] = head.Seq
		}
	}
	if found.Rev < floor {
		return b.storeChanged("its revision is %d after %d was read", found.Rev, floor)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.rev, t.last, t.ready = found.Rev, last, true
	t.reset()
	return nil
}

// follow appends watched chunks. A chunk that leaves a gap in its shard, or was deleted before it
// arrived, resets every reader.
func (t *tail) follow(rev Rev, changes []Change) {
	t.mu.Lock()
	defer t.mu.Unlock()
	before := t.seq
	for _, c := range changes {
		if c.Rev <= t.rev {
			continue
		}
		shard, last, ok := t.keys.SplitChunk(c.Key)
		if !ok || last <= t.last[shard] {
			continue
		}
		var ch chunk
		if !c.Deleted {
			var err error
			if ch, err = decodeChunk(Pair{Key: c.Key, Value: c.Value, Rev: c.Rev}, shard, last); err != nil {
				continue // the next chunk of this shard will not follow, and causes a reset
			}
		}
		prev, known := t.last[shard]
		if !known {
			shard = driver.ShardID(strings.Clone(string(shard)))
		}
		t.last[shard] = last
		if c.Deleted {
			t.reset()
			continue
		}
		if ch.entries[0].Seq != prev+1 {
			t.reset()
			continue
		}
		t.seq++
		size := len(c.Value) + len(c.Key)
		t.chunks = append(t.chunks, tailChunk{chunk: ch, seq: t.seq, bytes: size})
		t.bytes += size
	}
	t.rev = max(t.rev, rev)
	if t.bytes > maxTailBytes || len(t.chunks) > maxTailChunks {
		drop := 0 // drop a quarter, so that moving the rest costs little per chunk
		for t.bytes > maxTailBytes/4*3 || len(t.chunks)-drop > maxTailChunks/4*3 {
			t.bytes -= t.chunks[drop].bytes
			t.floor = t.chunks[drop].seq
			drop++
		}
		t.chunks = slices.Delete(t.chunks, 0, drop)
	}
	if t.seq != before {
		t.wakeLocked()
	}
}

func (t *tail) reset() {
	t.seq++
	t.floor = t.seq
	t.chunks, t.bytes = nil, 0
	t.wakeLocked()
}

// The result of after is about limit entries, always in whole commits, and the position that
// follows them.
func (t *tail) after(seq int64, limit int) ([]driver.Entry, int64) {
	var entries []driver.Entry
	from := sort.Search(len(t.chunks), func(i int) bool { return t.chunks[i].seq > seq })
	for _, c := range t.chunks[from:] {
		if len(entries) > 0 && len(entries)+len(c.entries) > limit {
			break
		}
		entries = append(entries, c.entries...)
		seq = c.seq
	}
	return entries, seq
}

package system

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/tenure-go/tenure/core/driver"
)

// watcher is the supervisor's view of the namespace. The supervisor uses the watcher to choose
// victims and to wait. The checks do not use the watcher, because the histories contain their
// evidence. A watcher is safe for concurrent use.
type watcher struct {
	mu        sync.Mutex
	owners    map[driver.ShardID]driver.Owner
	last      map[driver.ShardID]driver.SessionID // the last session that owned the shard
	members   map[driver.SessionID]driver.Member
	takeovers int // observed changes of a shard's owner
}

// run follows the namespace until ctx ends.
func (w *watcher) run(ctx context.Context, b driver.Backend) {
	var cursor driver.Cursor
	for ctx.Err() == nil {
		v, err := b.Observe(ctx, driver.ObserveQuery{Since: cursor})
		if err != nil {
			pause(ctx, 20*time.Millisecond)
			continue
		}
		w.take(v)
		cursor = v.Cursor
	}
}

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

func (w *watcher) take(v *driver.View) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if v.Reset || w.owners == nil {
		w.owners, w.members = map[driver.ShardID]driver.Owner{}, map[driver.SessionID]driver.Member{}
	}
	if w.last == nil {
		w.last = map[driver.ShardID]driver.SessionID{}
	}
	for _, m := range v.Members {
		w.members[m.Session] = m
	}
	for _, s := range v.Gone {
		delete(w.members, s)
	}
	for _, s := range v.Shards {
		w.owners[s.Shard] = s.Owner
		if now := s.Owner.Session; now != "" {
			if before := w.last[s.Shard]; before != "" && before != now {
				w.takeovers++
			}
			w.last[s.Shard] = now
		}
	}
}

// owner returns the shard's record, and the process of its owner. If no live member owns the shard,
// process is "".
func (w *watcher) owner(s driver.ShardID) (o driver.Owner, process string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	o = w.owners[s]
	return o, w.members[o.Session].Meta[metaProcess]
}

// owned returns the shards of a process, sorted.
func (w *watcher) owned(process string) []driver.ShardID {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []driver.ShardID
	for _, s := range slices.Sorted(maps.Keys(w.owners)) {
		if w.members[w.owners[s].Session].Meta[metaProcess] == process {
			out = append(out, s)
		}
	}
	return out
}

// session returns the live session of a process, or "" if it has none.
func (w *watcher) session(process string) driver.SessionID {
	w.mu.Lock()
	defer w.mu.Unlock()
	for id, m := range w.members {
		if m.Meta[metaProcess] == process {
			return id
		}
	}
	return ""
}

func (w *watcher) seenTakeovers() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.takeovers
}

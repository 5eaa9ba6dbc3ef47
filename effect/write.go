package effect

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/tenure-go/tenure/core"
)

// Bounds of one commit, where the store allows more.
const (
	mostOps   = 1024
	mostBytes = 512 << 10
)

// reads is how many records are read at once where intents met records.
const reads = 16

// A commit waits up to gatherFor for as many writes as half of the effects under way, where
// these are gatherFrom or more: a fast store would else have a call for every few of them.
const (
	gatherFrom = 8
	gatherFor  = 2 * time.Millisecond
	gatherStep = gatherFor / 4
)

// outbox writes what all effects of a ledger wait for, in as few commits as there can be:
// what arrives while one is in flight forms the next. Core would send each intent by itself,
// as it has a precondition.
type outbox struct {
	l *Ledger

	mu     sync.Mutex
	queue  []*entry
	closed bool

	wake  chan struct{} // something is queued, or closed is set
	ended chan struct{} // write has returned
	most  int           // operations of one commit, as the store says
	bytes int
	ops   int // as most, or fewer since the server takes fewer; only write uses it
}

// An entry is a part of a commit: all of it or none.
type entry struct {
	ops   []core.Op
	key   string     // of an intent's record, which must not exist; else empty
	found *core.Item // the record that existed; then nothing was written
	err   error
	done  chan struct{} // closed after found and err are set
}

func newOutbox(l *Ledger) *outbox {
	limits := l.lease.Limits()
	w := &outbox{l: l, wake: make(chan struct{}, 1), ended: make(chan struct{}), most: mostOps, bytes: mostBytes}
	if limits.WriteOps > 0 {
		w.most = min(w.most, limits.WriteOps)
	}
	if limits.WriteBytes > 0 {
		w.bytes = min(w.bytes, limits.WriteBytes)
	}
	w.ops = w.most
	return w
}

// put commits ops, and returns when that is done: at the latest when the lease is over. Key,
// if not empty, is that of a record that must not exist; one that does is returned instead.
func (w *outbox) put(key string, ops ...core.Op) (*core.Item, error) {
	e := &entry{ops: ops, key: key, done: make(chan struct{})}
	w.mu.Lock()
	w.queue = append(w.queue, e)
	w.mu.Unlock()
	w.signal()
	<-e.done
	return e.found, e.err
}

func (w *outbox) signal() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// close ends write, after nobody calls put any more.
func (w *outbox) close() {
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()
	w.signal()
	<-w.ended
}

// write commits batch after batch until close is called.
func (w *outbox) write() {
	defer close(w.ended)
	for range w.wake {
		for {
			w.gather()
			batch, closed := w.next()
			if len(batch) == 0 {
				if closed {
					return
				}
				break
			}
			w.send(batch)
		}
	}
}

// gather lets effects that were just served, and others under way, queue what follows.
func (w *outbox) gather() {
	runtime.Gosched()
	for waited := time.Duration(0); waited < gatherFor; waited += gatherStep {
		w.mu.Lock()
		queued := len(w.queue)
		w.mu.Unlock()
		if n := len(w.l.places); queued == 0 || n < gatherFrom || queued >= n/2 {
			return
		}
		time.Sleep(gatherStep)
	}
}

// next takes the entries of the next commit: no key twice, and within the limits.
func (w *outbox) next() (batch []*entry, closed bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	ops, size, keys := 0, 0, make(map[string]bool)
	for n, e := range w.queue {
		ops += len(e.ops)
		dup := false
		for i := range e.ops {
			size += len(e.ops[i].Key) + len(e.ops[i].Value)
			dup = dup || keys[e.ops[i].Key]
		}
		if n > 0 && (dup || ops > w.ops || size > w.bytes) {
			break
		}
		for i := range e.ops {
			keys[e.ops[i].Key] = true
		}
		batch = append(batch, e)
	}
	w.queue = w.queue[len(batch):]
	return batch, w.closed
}

// send commits a batch. An intent whose record exists is answered with it, and the others are
// committed without it.
func (w *outbox) send(batch []*entry) {
	for len(batch) > 0 {
		var ops []core.Op
		for _, e := range batch {
			ops = append(ops, e.ops...)
		}
		_, err := w.l.lease.Commit(w.l.lease.Context(), ops...)
		switch {
		case errors.Is(err, core.ErrConflict) && core.NotApplied(err):
			rest := w.existing(batch)
			if len(rest) < len(batch) {
				batch = rest
				continue
			}
		case errors.Is(err, core.ErrTooLarge) && len(batch) > 1: // the server takes less than it said
			w.ops = max(len(ops)/2, 8)
			w.send(batch[:len(batch)/2])
			batch = batch[len(batch)/2:]
			continue
		}
		for _, e := range batch {
			e.err = err
			close(e.done)
		}
		return
	}
}

// existing reads the records of all intents of a batch, answers those that there are, and
// returns the other entries.
func (w *outbox) existing(batch []*entry) (rest []*entry) {
	var group sync.WaitGroup
	places := make(chan struct{}, reads)
	for _, e := range batch {
		if e.key == "" {
			continue
		}
		places <- struct{}{}
		group.Go(func() {
			defer func() { <-places }()
			if e.found, e.err = w.l.lease.Get(w.l.lease.Context(), recordPrefix+e.key); e.err != nil {
				e.err = fmt.Errorf("tenure: effect %q: read its record: %w", e.key, e.err)
			}
		})
	}
	group.Wait()
	for _, e := range batch {
		if e.found == nil && e.err == nil {
			rest = append(rest, e)
			continue
		}
		close(e.done)
	}
	return rest
}

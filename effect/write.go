package effect

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/tenure-go/tenure/core"
)

// Limits of one commit. The store's may be lower.
const (
	mostOps   = 1024
	mostBytes = 512 << 10
)

// reads is the number of records that are read together after a conflict.
const reads = 16

// If at least gatherFrom effects are in progress, a commit waits up to gatherFor for half as many
// writes. Otherwise, a fast store would get a call for every few writes.
const (
	gatherFrom = 8
	gatherFor  = 2 * time.Millisecond
	gatherStep = gatherFor / 4
)

// outbox writes for all effects of a ledger in as few commits as possible. Entries that arrive
// during one commit form the next. Core would send each intent alone, because it has a
// precondition.
type outbox struct {
	l *Ledger

	mu     sync.Mutex
	queue  []*entry
	closed bool

	wake  chan struct{} // something is queued, or closed is set
	ended chan struct{} // write has returned
	bytes int           // largest size of one commit, according to the store
	ops   int           // largest number of operations, lowered if the server takes fewer; only write uses it
}

// An entry is committed or refused as a whole.
type entry struct {
	ops   []core.Op
	key   string     // of an intent's record, which must not exist; otherwise empty
	found *core.Item // the record that existed; nothing was written
	err   error
	done  chan struct{} // closed after found and err are set
}

func newOutbox(l *Ledger) *outbox {
	limits := l.lease.Limits()
	w := &outbox{l: l, wake: make(chan struct{}, 1), ended: make(chan struct{}), ops: mostOps, bytes: mostBytes}
	if limits.WriteOps > 0 {
		w.ops = min(w.ops, limits.WriteOps)
	}
	if limits.WriteBytes > 0 {
		w.bytes = min(w.bytes, limits.WriteBytes)
	}
	return w
}

// put commits ops and waits until they are committed or the lease is over. If key is not empty, it
// is the key of a record that must not exist; if the record exists, put returns it instead.
func (w *outbox) put(key string, ops ...core.Op) (*core.Item, error) {
	e := &entry{ops: ops, key: key, done: make(chan struct{})}
	w.enqueue(e)
	<-e.done
	return e.found, e.err
}

// enqueue queues entries for write.
func (w *outbox) enqueue(e ...*entry) {
	w.mu.Lock()
	w.queue = append(w.queue, e...)
	w.mu.Unlock()
	w.signal()
}

func (w *outbox) signal() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// close ends the loop in write. No goroutine may call put afterwards.
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

// gather waits briefly, so that effects in progress can queue their next writes.
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

// next takes the entries of the next commit, within the limits. No key occurs twice.
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

// send commits a batch. If an intent's record already exists, its entry receives the record, and
// the other entries are committed without it.
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
		case errors.Is(err, core.ErrTooLarge) && len(batch) > 1: // the server accepts less now
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

// existing reads the records of all intents of a batch. It completes the entries whose record
// exists, and returns the others.
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

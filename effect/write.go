package effect

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/tenure-go/tenure/core"
)

// The store's limits on one commit may be lower.
const (
	mostOps   = 1024
	mostBytes = 512 << 10
)

// After a conflict, up to this many records are read concurrently.
const reads = 16

// If at least gatherFrom effects are in progress, a commit waits, for up to gatherFor, until half
// as many writes are queued. Without this wait, a fast store would receive one call for every few
// writes.
const (
	gatherFrom = 8
	gatherFor  = 2 * time.Millisecond
	gatherStep = gatherFor / 4
)

// outbox combines the writes for all of a ledger's effects into few commits. Entries that are
// queued during one commit form the next commit. Package core would send each intent separately,
// because each intent has a precondition.
type outbox struct {
	l *Ledger

	mu     sync.Mutex
	queue  []*entry
	closed bool

	wake  chan struct{} // something is queued, or closed is set
	ended chan struct{} // write has returned
	bytes int           // maximum size of one commit, according to the store
	ops   int           // maximum number of operations, lowered if the server accepts fewer; used by write only
}

// entry contains operations that are committed or refused as a whole.
type entry struct {
	ops   []core.Op
	key   string     // for an intent: the key of the record, which must not exist; otherwise empty
	found *core.Item // the record that already existed, in which case nothing was written
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

// put waits until ops are committed or the lease is over. If key is not empty and a record with
// this key exists, put commits nothing and returns the record.
func (w *outbox) put(key string, ops ...core.Op) (*core.Item, error) {
	e := &entry{ops: ops, key: key, done: make(chan struct{})}
	w.enqueue(e)
	<-e.done
	return e.found, e.err
}

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

// After close, no goroutine may call put.
func (w *outbox) close() {
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()
	w.signal()
	<-w.ended
}

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

// The next commit is within the limits, and no key occurs twice in it.
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

// If an intent's record already exists, the intent's entry receives the record, and the other
// entries are committed without that entry.
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

// existing completes a batch's intents whose record exists, and returns the other entries.
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

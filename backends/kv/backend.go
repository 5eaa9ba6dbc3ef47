package kv

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/kvkeys"
)

var _ driver.Backend = (*Backend)(nil)

// Backend is a driver.Backend on a Store. Safe for concurrent use.
type Backend struct {
	*driver.Certificate // nil without files of TLS; set before the first use

	store    Store
	keys     kvkeys.Keys
	info     driver.Info
	pipeline int
	fit      func([]Txn) int // of Options

	idRev    Rev          // revision of the identity record when it was opened
	base     driver.Token // of the identity record
	instance string       // random: cursors of another Backend are refused by it

	acked   atomic.Int64          // highest revision that answered an own write (rule I1)
	changed atomic.Pointer[error] // set once the store was seen to have changed
	leases  leases
	mirror  mirror
	tail    tail
	trimmed trimmed

	life    context.Context // ends with Close
	end     context.CancelFunc
	mu      sync.Mutex // guards closed, and the start of goroutines against it
	closed  bool
	running sync.WaitGroup
}

// Info returns what is constant after opening.
func (b *Backend) Info() driver.Info { return b.info }

// Close unblocks what is blocked, joins the goroutines and closes the Store.
func (b *Backend) Close() error {
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return nil
	}
	b.closed = true
	b.mu.Unlock()
	b.end()
	err := b.store.Close()
	b.running.Wait()
	if err != nil {
		return fmt.Errorf("tenure: closing the store: %w", err)
	}
	return nil
}

// ready refuses a call that cannot be made: nothing of it is sent.
func (b *Backend) ready(ctx context.Context) error {
	if b.life.Err() != nil {
		return errClosed()
	}
	if err := b.changed.Load(); err != nil {
		return *err
	}
	if err := ctx.Err(); err != nil {
		return notSent(err)
	}
	return nil
}

// storeChanged remembers that the store is not the one it was, until the backend
// is opened again by an operator's decision (rule I1).
func (b *Backend) storeChanged(format string, args ...any) error {
	err := fmt.Errorf("tenure: namespace %q: %w: %s", b.info.Namespace, driver.ErrStoreChanged, fmt.Sprintf(format, args...))
	if !b.changed.CompareAndSwap(nil, &err) {
		return *b.changed.Load()
	}
	b.mirror.wake()
	b.tail.wake()
	return err
}

// apply sends a batch whose guard is the namespace's identity and then guard, and
// checks the answer against what was acknowledged before it was sent (rule I1):
// calls overlap, so it cannot be checked against what was acknowledged since.
func (b *Backend) apply(ctx context.Context, batch *Batch, guard ...Compare) (*Outcome, error) {
	if err := b.ready(ctx); err != nil {
		return nil, err
	}
	batch.Guard = append([]Compare{{Key: b.keys.Identity(), Rev: b.idRev}}, guard...)
	floor := Rev(b.acked.Load())
	out, err := b.store.Apply(ctx, batch)
	if err != nil {
		return nil, fmt.Errorf("tenure: writing: %w", err)
	}
	if out.Refused {
		if len(out.Guard) != len(batch.Guard) {
			return nil, fmt.Errorf("tenure: the store answered %d of %d guards", len(out.Guard), len(batch.Guard))
		}
		return out, b.checkIdentity(out.Guard[0])
	}
	if len(out.Results) != len(batch.Txns) {
		return nil, fmt.Errorf("tenure: the store answered %d of %d transactions", len(out.Results), len(batch.Txns))
	}
	top := out.Rev
	if top != 0 && top < floor {
		return nil, b.wentBack(batch, out, "its revision is %d after %d was acknowledged", top, floor)
	}
	for i := range out.Results {
		r := &out.Results[i]
		if !r.OK {
			continue
		}
		if errors.Is(r.Err, driver.ErrStoreChanged) {
			return nil, b.wentBack(batch, out, "%v", r.Err)
		}
		if r.Rev <= floor {
			return nil, b.wentBack(batch, out, "a write has revision %d after %d was acknowledged", r.Rev, floor)
		}
		top = max(top, r.Rev)
	}
	b.ack(top)
	return out, nil
}

// wentBack is the error of a batch whose answer shows that the store went back. What it
// applied is no error of the closed set (rule E1): its outcome is unknown, and the next
// call, and observers at once, get ErrStoreChanged. A heartbeat is not undone or repeated,
// so it says so itself (rule I1).
func (b *Backend) wentBack(batch *Batch, out *Outcome, format string, args ...any) error {
	err := b.storeChanged(format, args...)
	applied := func(r Result) bool { return r.OK || r.Err != nil }
	if batch.Heartbeat || !slices.ContainsFunc(out.Results, applied) {
		return err
	}
	return fmt.Errorf("tenure: outcome unknown: the store applied a write, and is not the one it was: %v", err)
}

func (b *Backend) ack(rev Rev) {
	for {
		old := b.acked.Load()
		if int64(rev) <= old || b.acked.CompareAndSwap(old, int64(rev)) {
			return
		}
	}
}

func (b *Backend) checkIdentity(p Pair) error {
	switch p.Rev {
	case b.idRev:
		return nil
	case 0:
		return b.storeChanged("its identity record is missing")
	default:
		return b.storeChanged("its identity record was written again")
	}
}

// token is the token of a lease granted by a write at revision rev (rule A2).
func (b *Backend) token(rev Rev) driver.Token { return b.base + driver.Token(rev) }

// revision is the revision that granted a token, 0 if none can have.
func (b *Backend) revision(t driver.Token) Rev { return max(0, Rev(t-b.base)) }

// owner reads a shard's record; the zero Owner and no error if there is none.
func (b *Backend) owner(p Pair) (driver.Owner, shardRecord, error) {
	if p.Rev == 0 {
		return driver.Owner{}, shardRecord{}, nil
	}
	r, err := decodeShard(p, b.base)
	if err != nil {
		return driver.Owner{}, shardRecord{}, err
	}
	if r.Session == "" {
		return driver.Owner{Token: r.Token}, r, nil
	}
	return driver.Owner{Session: r.Session, Token: b.token(p.Rev)}, r, nil
}

// readError classifies the failure of a read.
func (b *Backend) readError(err error) error {
	if b.life.Err() != nil {
		return errClosed()
	}
	return fmt.Errorf("tenure: reading: %w", err)
}

func errClosed() error { return fmt.Errorf("tenure: %w: the backend", driver.ErrClosed) }

// notSent is a write that failed before anything of it was sent.
func notSent(err error) error {
	return fmt.Errorf("tenure: %w: nothing was sent: %w", driver.ErrRetry, err)
}

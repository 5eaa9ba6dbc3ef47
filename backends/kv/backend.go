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
	"github.com/tenure-go/tenure/internal/oddkey"
)

var _ driver.Backend = (*Backend)(nil)

// Backend is a driver.Backend on a Store. A Backend is safe for concurrent use.
type Backend struct {
	*driver.Certificate // nil without TLS files; set before the first use

	store    Store
	keys     kvkeys.Keys
	info     driver.Info
	pipeline int
	fit      func([]Txn) int // of Options

	idRev    Rev          // revision of the identity record when it was opened
	base     driver.Token // of the identity record
	instance string       // random, so that another Backend refuses this one's cursors
	odd      oddkey.Found

	acked   atomic.Int64          // highest revision in an answer to a write of this Backend (rule I1)
	changed atomic.Pointer[error] // set when the store was found to be replaced
	leases  leases
	mirror  mirror
	tail    tail
	trimmed trimmed

	life    context.Context // ends with Close
	end     context.CancelFunc
	mu      sync.Mutex // guards closed, and the start of goroutines
	closed  bool
	running sync.WaitGroup
}

// Info returns a description of the Backend, which never changes after Open.
func (b *Backend) Info() driver.Info { return b.info }

// Close ends blocked calls, closes the Store and waits for all goroutines.
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

// ready returns an error if nothing may be sent.
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

// storeChanged records that the store was replaced. An operator must decide whether to reopen the
// namespace (rule I1).
func (b *Backend) storeChanged(format string, args ...any) error {
	err := fmt.Errorf("tenure: namespace %q: %w: %s", b.info.Namespace, driver.ErrStoreChanged, fmt.Sprintf(format, args...))
	if !b.changed.CompareAndSwap(nil, &err) {
		return *b.changed.Load()
	}
	b.mirror.wake()
	b.tail.wake()
	return err
}

// apply sends a batch under guard, preceded by a condition on the namespace's identity. The answer
// is checked against the highest revision acknowledged before sending (rule I1). Because calls
// overlap, later acknowledgements prove nothing.
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

// wentBack returns the error for an answer from an earlier state of the store. The outcome is
// unknown, so the error does not satisfy driver.NotApplied (rule E1). A heartbeat is neither undone
// nor repeated, so its error is ErrStoreChanged (rule I1). Every later call returns
// ErrStoreChanged, and waiting observers receive it immediately.
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

// token returns the token of a lease granted by a write at revision rev (rule A2).
func (b *Backend) token(rev Rev) driver.Token { return b.base + driver.Token(rev) }

// revision returns the revision at which a token was granted, or 0 if it cannot have been granted.
func (b *Backend) revision(t driver.Token) Rev { return max(0, Rev(t-b.base)) }

// owner decodes a shard's record, and returns the zero Owner if there is no record.
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

func (b *Backend) readError(err error) error {
	if b.life.Err() != nil {
		return errClosed()
	}
	return fmt.Errorf("tenure: reading: %w", err)
}

func errClosed() error { return fmt.Errorf("tenure: %w: the backend", driver.ErrClosed) }

func notSent(err error) error {
	return fmt.Errorf("tenure: %w: nothing was sent: %w", driver.ErrRetry, err)
}

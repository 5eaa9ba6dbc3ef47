package core

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/tenure-go/tenure/core/control"
	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/fsm"
)

// Lease is the ownership of one shard, from its grant until Context ends. All
// methods are safe for concurrent use.
//
// A lease is valid while this process may trust it. Once another session has been granted the
// shard, the store refuses writes under this lease. For work outside the store, send Fence, or
// Token with the shard's name, to the system that checks tokens.
type Lease struct {
	e     *Elector
	clk   *clock // e.clk, copied to save an indirection in Err
	fence Fence
	sess  driver.Session
	trust *trust
	ended atomic.Pointer[RevokedError]

	ctx    context.Context
	cancel context.CancelCauseFunc

	commits  committer
	progress atomic.Int64 // instant of the last call of Progress
}

// A trust records when one session's leases can no longer be trusted.
type trust struct {
	session SessionID
	until   atomic.Int64 // an fsm.Instant; only the Elector sets it, under its lock
}

func (e *Elector) newLease(f Fence, sess driver.Session, t *trust, head Head) *Lease {
	l := &Lease{e: e, clk: e.clk, fence: f, sess: sess, trust: t}
	l.ctx, l.cancel = context.WithCancelCause(context.Background())
	l.commits.head = head
	l.progress.Store(int64(e.clk.now()))
	return l
}

// Shard returns the shard's name.
func (l *Lease) Shard() string { return string(l.fence.Shard) }

// Token returns the fencing token. Compare tokens only within one shard.
func (l *Lease) Token() Token { return l.fence.Token }

// Fence returns the fence, which identifies exactly this lease.
func (l *Lease) Fence() Fence { return l.fence }

// Namespace returns the name of the shard's namespace.
func (l *Lease) Namespace() string { return l.e.info.Namespace }

// Limits returns the store's limits, such as the maximum number of operations and bytes in a
// commit.
func (l *Lease) Limits() Limits { return l.e.info.Limits }

// Context returns a context that ends only when the lease may no longer be used: the lease was lost
// or given up, or the handler's drain budget is spent. Use context.Cause to get the *RevokedError.
// Use this context for final writes, because the handler's own context ends when the handler should
// stop taking work.
func (l *Lease) Context() context.Context { return l.ctx }

// Err returns nil while the lease is valid, and otherwise a *RevokedError. Err only reads the
// clock, uses neither the network nor a timer, and takes about 50 ns. Err does not replace the
// fence, because the process may be stopped right after the call (F1).
//
// On Linux, the first call to Err after the machine was suspended counts the suspended time.
// Context then ends within half of Options.Margin. On other systems, a suspension counts only if
// Go's monotonic clock includes it. A virtual machine does not notice when its host pauses it. If
// the host pauses a virtual machine, only the fence protects the writes. After Context has ended,
// Err never returns nil again (S6).
func (l *Lease) Err() error {
	if r := l.ended.Load(); r != nil {
		return r
	}
	if int64(l.clk.now()) >= l.trust.until.Load() {
		return revoked(l.fence, fsm.CauseLapsed) // the timer has not ended Context yet
	}
	return nil
}

// Remaining returns how long the lease stays valid if no further heartbeat succeeds, or 0 if the
// lease is not valid.
func (l *Lease) Remaining() time.Duration {
	if l.ended.Load() != nil {
		return 0
	}
	return max(0, time.Duration(l.trust.until.Load()-int64(l.e.clk.now())))
}

// Rules returns the same operators' rules as View.Rules, but at a lower cost. The caller must not
// modify the slice.
func (l *Lease) Rules() []control.Rule {
	l.e.mu.Lock()
	defer l.e.mu.Unlock()
	return l.e.rules.rules
}

// Head returns the shard's head after the last commit of this lease. Before the first commit, Head
// returns the head at the start of the lease. The next entry that the lease appends gets the number
// Head().Seq+1.
func (l *Lease) Head() Head {
	l.commits.mu.Lock()
	defer l.commits.mu.Unlock()
	return l.commits.head
}

// Get returns an item of the shard, or nil and no error if the shard has no such item. Get sees
// every commit that was sent under the lease before the call. Get waits for commits in flight, even
// if their callers gave up. If the lease ends before the answer arrives, the error matches ErrLost.
// In this case, Get returns no item, because the item may be out of date.
func (l *Lease) Get(ctx context.Context, key string) (*Item, error) {
	return guarded(ctx, l, callGet, func(ctx context.Context) (*Item, error) { return l.e.b.Get(ctx, l.fence.Shard, key) })
}

// List returns the shard's items whose keys begin with the bytes of prefix, in key order. List
// returns the first limit items, or all items if limit is 0. If limit is negative, the error is
// ErrInvalid. The limit also applies to the number of values read from the store. If largest is
// positive, an item with a larger value has Damaged set instead of the value. See driver.Backend.
// In all other respects, List is like Get.
func (l *Lease) List(ctx context.Context, prefix string, limit, largest int) ([]Item, error) {
	return guarded(ctx, l, callList, func(ctx context.Context) ([]Item, error) {
		return l.e.b.List(ctx, l.fence.Shard, prefix, limit, largest)
	})
}

// ReadLog returns the head of the shard's decision log and at most max contiguous entries,
// beginning with entry after+1. If max is 0, ReadLog returns only the head. A page may be shorter
// than max, but it is not empty if the log has entries beyond after. If the log no longer contains
// entry after+1, the error is a *TrimmedError. In all other respects, ReadLog is like Get.
func (l *Lease) ReadLog(ctx context.Context, after Seq, max int) (*LogPage, error) {
	return guarded(ctx, l, callReadLog, func(ctx context.Context) (*LogPage, error) { return l.e.b.ReadLog(ctx, l.fence.Shard, after, max) })
}

// guarded calls the function read between two checks of the lease. If the lease passes both checks,
// no other process wrote in between.
func guarded[T any](ctx context.Context, l *Lease, kind string, read func(context.Context) (T, error)) (T, error) {
	var none T
	if err := l.Err(); err != nil {
		return none, err
	}
	var v T
	err := l.landed(ctx)
	if err == nil {
		inner, call := l.e.note.startCall(ctx, kind, 0, l.fence.Shard, nil)
		v, err = read(inner)
		call.done(err)
	}
	if err != nil {
		l.e.storeChanged(err)
		l.e.damaged(err)
		if lost := l.Err(); lost != nil { // the loss of a lease often ends ctx
			return none, fmt.Errorf("%w: read: %v", lost, err)
		}
		return none, fmt.Errorf("tenure: shard %q: read: %w", l.fence.Shard, err)
	}
	if err := l.Err(); err != nil {
		return none, err
	}
	return v, nil
}

// Progress reports to the watchdog that the handler is making progress. See Options.Watchdog.
func (l *Lease) Progress() { l.progress.Store(int64(l.e.clk.now())) }

// The Elector calls end once, under its lock, to make the lease permanently invalid.
func (l *Lease) end(cause fsm.Cause) *RevokedError {
	r := revoked(l.fence, cause)
	l.ended.Store(r)
	l.commits.close()
	l.cancel(r)
	return r
}

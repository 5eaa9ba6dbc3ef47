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
// A lease is valid up to the last instant at which this process may trust it. Once another session
// has been granted the shard, the store refuses later writes. Work outside the store carries Fence,
// or Token with the shard's name, to the place that checks it.
type Lease struct {
	e     *Elector
	clk   *clock // e.clk, copied to spare Err one step
	fence Fence
	sess  driver.Session
	trust *trust
	ended atomic.Pointer[RevokedError]

	ctx    context.Context
	cancel context.CancelCauseFunc

	commits  committer
	progress atomic.Int64 // instant of the last call of Progress
}

// trust is how long one session's leases may be trusted.
type trust struct {
	session SessionID
	until   atomic.Int64 // an fsm.Instant; only the elector stores, under its lock
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

// Fence returns the fence, which names the lease exactly.
func (l *Lease) Fence() Fence { return l.fence }

// Namespace returns the name of the shard's namespace.
func (l *Lease) Namespace() string { return l.e.info.Namespace }

// Limits returns the store's limits, such as the operations and bytes of one commit.
func (l *Lease) Limits() Limits { return l.e.info.Limits }

// Context returns a context that ends only when the lease may no longer be used. It was lost or
// given back, or the drain budget is spent. Use context.Cause to get the *RevokedError. Use this
// context for closing writes, because the handler's own context ends when the handler should stop
// taking work. Neither is a child of Run's context.
func (l *Lease) Context() context.Context { return l.ctx }

// Err returns nil while the lease is valid, otherwise a *RevokedError. It reads the clock at each
// call. It uses neither the network nor a timer, and takes about 50 ns. It does not replace the
// fence, because the process may be stopped right after the call (F1).
//
// On Linux, the first call after a suspension of the machine counts the suspended time. Context
// then ends within half of Options.Margin. On other systems, a suspension counts only if Go's
// monotonic clock counts it. No virtual machine notices that its host paused it. In this case, the
// fence protects its writes. After Context has ended, Err never returns nil again (S6).
func (l *Lease) Err() error {
	if r := l.ended.Load(); r != nil {
		return r
	}
	if int64(l.clk.now()) >= l.trust.until.Load() {
		return revoked(l.fence, fsm.CauseLapsed) // the timer has not ended Context yet
	}
	return nil
}

// Remaining returns how long the lease stays valid if no further heartbeat succeeds, or 0 if it
// is not valid.
func (l *Lease) Remaining() time.Duration {
	if l.ended.Load() != nil {
		return 0
	}
	return max(0, time.Duration(l.trust.until.Load()-int64(l.e.clk.now())))
}

// Rules returns the same operators' rules as View.Rules, at a lower cost. The caller must not
// modify the slice.
func (l *Lease) Rules() []control.Rule {
	l.e.mu.Lock()
	defer l.e.mu.Unlock()
	return l.e.rules.rules
}

// Head returns the shard's head as this lease found it, or as its last commit left it. The next
// entry that the lease appends gets number Head().Seq+1.
func (l *Lease) Head() Head {
	l.commits.mu.Lock()
	defer l.commits.mu.Unlock()
	return l.commits.head
}

// Get returns an item of the shard, or nil and no error if the shard has no such item. It sees
// every commit sent under the lease before the call, because it waits for commits in flight. It
// does so even if their callers gave up. If the error matches ErrLost, the lease ended before the
// answer came. Get then returns no item, because the item may be out of date.
func (l *Lease) Get(ctx context.Context, key string) (*Item, error) {
	return guarded(ctx, l, callGet, func(ctx context.Context) (*Item, error) { return l.e.b.Get(ctx, l.fence.Shard, key) })
}

// List returns the shard's items whose key begins with prefix, byte by byte, in the order of their
// keys. It returns the first limit items, or all if limit is 0. If limit is negative, the error is
// ErrInvalid. The limit also applies to reads from the store. If largest is positive, an item with
// a larger value has Damaged set instead of the value; see driver.Backend. Otherwise, List behaves
// like Get.
func (l *Lease) List(ctx context.Context, prefix string, limit, largest int) ([]Item, error) {
	return guarded(ctx, l, callList, func(ctx context.Context) ([]Item, error) {
		return l.e.b.List(ctx, l.fence.Shard, prefix, limit, largest)
	})
}

// ReadLog returns at most max entries of the shard's decision log after the given one, contiguous
// from after+1, and the log's head. If max is 0, it returns only the head. A page may be shorter
// than max, but is not empty while there are entries. For entries below the oldest, the error is
// *TrimmedError. Otherwise, ReadLog behaves like Get.
func (l *Lease) ReadLog(ctx context.Context, after Seq, max int) (*LogPage, error) {
	return guarded(ctx, l, callReadLog, func(ctx context.Context) (*LogPage, error) { return l.e.b.ReadLog(ctx, l.fence.Shard, after, max) })
}

// guarded calls read between two checks of the lease. If both checks pass, no other process wrote
// in between.
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
		if lost := l.Err(); lost != nil { // the lost lease often ended ctx
			return none, fmt.Errorf("%w: read: %v", lost, err)
		}
		return none, fmt.Errorf("tenure: shard %q: read: %w", l.fence.Shard, err)
	}
	if err := l.Err(); err != nil {
		return none, err
	}
	return v, nil
}

// Progress reports to the watchdog that the handler makes progress. See Options.Watchdog.
func (l *Lease) Progress() { l.progress.Store(int64(l.e.clk.now())) }

// end makes the lease permanently invalid. The elector calls it once while it holds its lock.
func (l *Lease) end(cause fsm.Cause) *RevokedError {
	r := revoked(l.fence, cause)
	l.ended.Store(r)
	l.commits.close()
	l.cancel(r)
	return r
}

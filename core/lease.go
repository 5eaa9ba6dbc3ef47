package core

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/fsm"
)

// Lease is the ownership of one shard, from its grant until Context ends. All
// methods are safe for concurrent use.
//
// A lease is valid up to the last instant at which this process may still believe
// in it; whatever it writes to the store later is refused there, once somebody
// else was granted the shard. Work outside the store carries Fence, or Token with
// the shard's name, to where it is checked.
type Lease struct {
	e     *Elector
	clk   *clock // e.clk, one step nearer for Err
	fence Fence
	sess  driver.Session
	trust *trust
	ended atomic.Pointer[RevokedError]

	ctx    context.Context
	cancel context.CancelCauseFunc

	commits  committer
	progress atomic.Int64 // instant of the last call
}

// trust is how long one session's leases may be believed in.
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

// Shard is the shard's name.
func (l *Lease) Shard() string { return string(l.fence.Shard) }

// Token is the fencing token. It is compared within one shard only.
func (l *Lease) Token() Token { return l.fence.Token }

// Fence names the lease exactly.
func (l *Lease) Fence() Fence { return l.fence }

// Namespace is the name of the namespace that the shard belongs to.
func (l *Lease) Namespace() string { return l.e.info.Namespace }

// Limits are the bounds of the store, such as the operations and bytes of one commit.
func (l *Lease) Limits() Limits { return l.e.info.Limits }

// Context ends only when the lease may not be used any more: it was lost, the
// drain budget is spent, or it was given back. context.Cause gives the
// *RevokedError. Closing writes use this context, since the handler's own ends
// when the handler should stop taking work. It is not a child of Run's.
func (l *Lease) Context() context.Context { return l.ctx }

// Err is nil while the lease is valid, else a *RevokedError. It is decided at the
// call, by the clock: it needs no network, no timer, and some 50 ns. It does not
// replace the fence: the process may be stopped right after it (F1).
//
// On Linux a suspension of the machine counts at the first call after it, and Context
// ends within half of Options.Margin. Elsewhere it counts as far as Go's monotonic clock
// does, and a virtual machine that its host pauses notices nothing on any system: what is
// done then is covered by the fence. Once Context has ended, Err is never nil again (S6).
func (l *Lease) Err() error {
	if r := l.ended.Load(); r != nil {
		return r
	}
	if int64(l.clk.now()) >= l.trust.until.Load() {
		return revoked(l.fence, fsm.CauseLapsed) // the clock found out first
	}
	return nil
}

// Remaining is how long the lease stays valid if no heartbeat succeeds any more;
// 0 if it is not valid.
func (l *Lease) Remaining() time.Duration {
	if l.ended.Load() != nil {
		return 0
	}
	return max(0, time.Duration(l.trust.until.Load()-int64(l.e.clk.now())))
}

// Head is the shard's head as this lease found it, or as its last commit left it:
// the next entry that it appends gets Head().Seq+1.
func (l *Lease) Head() Head {
	l.commits.mu.Lock()
	defer l.commits.mu.Unlock()
	return l.commits.head
}

// Get returns an item of the shard, nil without an error if there is none. It
// sees every commit that the lease sent before the call: it waits for one that is in flight,
// also if its caller gave up. An error that matches ErrLost means that the lease ended before
// the answer came: what was read, if anything, may be out of date, and is not returned.
func (l *Lease) Get(ctx context.Context, key string) (*Item, error) {
	return guarded(ctx, l, callGet, func(ctx context.Context) (*Item, error) { return l.e.b.Get(ctx, l.fence.Shard, key) })
}

// List returns the shard's items whose key begins with prefix, byte by byte, in the order of
// their keys: the first limit of them, or all if limit is 0; ErrInvalid if it is negative. The
// limit also bounds what is read from the store. Otherwise as Get.
func (l *Lease) List(ctx context.Context, prefix string, limit int) ([]Item, error) {
	return guarded(ctx, l, callList, func(ctx context.Context) ([]Item, error) { return l.e.b.List(ctx, l.fence.Shard, prefix, limit) })
}

// ReadLog returns at most max entries of the shard's decision log after the given
// one, contiguous from after+1, and the log's head; with max 0 the head only. A
// page may be shorter than max, but is not empty while there are entries. Below
// the oldest entry the error is *TrimmedError. Otherwise as Get.
func (l *Lease) ReadLog(ctx context.Context, after Seq, max int) (*LogPage, error) {
	return guarded(ctx, l, callReadLog, func(ctx context.Context) (*LogPage, error) { return l.e.b.ReadLog(ctx, l.fence.Shard, after, max) })
}

// guarded reads between two checks: with both passed, nobody else wrote in
// between.
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
		if lost := l.Err(); lost != nil { // by which ctx ended, often
			return none, fmt.Errorf("%w: read: %v", lost, err)
		}
		return none, fmt.Errorf("tenure: shard %q: read: %w", l.fence.Shard, err)
	}
	if err := l.Err(); err != nil {
		return none, err
	}
	return v, nil
}

// Progress tells the watchdog that the handler makes progress. See
// Options.Watchdog.
func (l *Lease) Progress() { l.progress.Store(int64(l.e.clk.now())) }

// end makes the lease invalid for good. The elector calls it once, under its
// lock.
func (l *Lease) end(cause fsm.Cause) *RevokedError {
	r := revoked(l.fence, cause)
	l.ended.Store(r)
	l.commits.close()
	l.cancel(r)
	return r
}

package core

import (
	"context"
	"time"
)

// Lease is the ownership of one shard, from its grant until Context ends. All
// methods are safe for concurrent use.
//
// A lease is valid until the last instant that this process may still believe in
// it; beyond, whatever it writes is refused by the store. Work outside the store
// carries Fence, or Token with the shard's name, to where it is checked.
type Lease struct {
	fence Fence
	ctx   context.Context
}

// Committed is what Commit did.
type Committed struct {
	Number   WriteNo   // of the commit; commits of several callers may share one
	First    Seq       // of the first entry appended by this call; 0 if none was
	Last     Seq       // of the last; they are contiguous
	Versions []Version // that each Put gave its item, 0 for other operations; nil
	// without a Put, and where an unknown outcome had to be settled by reading back
}

// Shard is the shard's name.
func (l *Lease) Shard() string { return string(l.fence.Shard) }

// Token is the fencing token. It is compared within one shard only.
func (l *Lease) Token() Token { return l.fence.Token }

// Fence names the lease exactly.
func (l *Lease) Fence() Fence { return l.fence }

// Context ends only when the lease may not be used any more: it was lost, the
// drain budget is spent, or it was given back. context.Cause gives the
// *RevokedError. Closing writes use this context. It is not a child of Run's.
func (l *Lease) Context() context.Context { return l.ctx }

// Err is nil while the lease is valid, else why it may not be used. It is
// decided at the call, by the clock: it needs no network and no timer.
func (l *Lease) Err() error { return nil }

// Remaining is how long the lease stays valid if no heartbeat succeeds any more;
// 0 if it is not valid.
func (l *Lease) Remaining() time.Duration { return 0 }

// Head is the shard's head as this lease found it, or as its last commit left it.
func (l *Lease) Head() Head { return Head{} }

// Commit applies ops under the lease's fence as one atomic step, all or nothing.
func (l *Lease) Commit(ctx context.Context, ops ...Op) (Committed, error) { return Committed{}, nil }

// Append appends one entry to the shard's decision log and returns its number.
func (l *Lease) Append(ctx context.Context, payload []byte) (Seq, error) { return 0, nil }

// Get returns an item of the shard, nil without an error if there is none.
func (l *Lease) Get(ctx context.Context, key string) (*Item, error) { return nil, nil }

// List returns the shard's items whose key begins with prefix, in order.
func (l *Lease) List(ctx context.Context, prefix string) ([]Item, error) { return nil, nil }

// ReadLog returns at most max entries of the shard's log after the given one.
func (l *Lease) ReadLog(ctx context.Context, after Seq, max int) (*LogPage, error) { return nil, nil }

// Progress tells the watchdog that the handler is alive. See Options.Watchdog.
func (l *Lease) Progress() {}

package core

import (
	"context"
)

// Handler does a shard's work under one lease, in a goroutine of its own. See
// the package comment for its two contexts.
type Handler func(ctx context.Context, lease *Lease) error

// Elector takes part in a namespace for one process. All methods are safe for
// concurrent use.
type Elector struct {
	b Backend
	o *Options
}

// NewElector returns an Elector on b, which stays the caller's to close after
// Run returned. It checks the options and does no I/O. Nil options work.
func NewElector(b Backend, o *Options) (*Elector, error) {
	c, err := o.resolve(b.Info().Limits)
	if err != nil {
		return nil, err
	}
	return &Elector{b: b, o: c}, nil
}

// Run takes part until ctx ends, then hands everything back.
func (e *Elector) Run(ctx context.Context) error { return nil }

// Contend makes this process want shards and serve them with h.
func (e *Elector) Contend(h Handler, shards ...string) error { return nil }

// Withdraw drains shards, gives them back, and waits until that is done.
func (e *Elector) Withdraw(ctx context.Context, shards ...string) error { return nil }

// HandOver is Withdraw with a successor: session to owns each shard at once.
func (e *Elector) HandOver(ctx context.Context, to SessionID, shards ...string) error { return nil }

// View is the newest snapshot.
func (e *Elector) View() *View { return &View{} }

// WaitView waits for a snapshot newer than after.
func (e *Elector) WaitView(ctx context.Context, after *View) (*View, error) { return &View{}, nil }

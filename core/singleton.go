package core

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
)

var errNoHandler = fmt.Errorf("tenure: %w: the handler is nil: give the function that does the work", ErrInvalid)

// RunSingleton runs h on at most one member of the namespace at a time, until h
// has done its work: when h returns nil before its context ended, the shard is
// given back and RunSingleton returns nil. If h returns an error, or loses its
// lease, the shard is contended for again, after a back-off in the former case,
// here and by the other members.
//
// When ctx ends first, h is asked to stop, the shard is given back, and the error
// is ctx's, joined with the one that h returned last, if any, and with Run's if
// something could not be given back. When b is closed first, the error matches
// ErrClosed. b stays the
// caller's to close. The other members' RunSingleton go on: each runs h until
// once for itself it returned nil. [RunOnce] is for work that one of them does for all.
//
// An argument that does not fit matches ErrInvalid, before anything is done.
func RunSingleton(ctx context.Context, b Backend, shard string, h Handler, o *Options) error {
	if h == nil {
		return errNoHandler
	}
	e, err := NewElector(b, o)
	if err != nil {
		return err
	}
	run, stop := context.WithCancel(ctx)
	defer stop()
	done := make(chan struct{})
	var once bool                  // only one handler runs at a time
	var last atomic.Pointer[error] // a stuck one may return after Run
	err = e.Contend(func(ctx context.Context, lease *Lease) error {
		err := h(ctx, lease)
		if isStop(ctx, err) {
			last.Store(nil)
		} else {
			last.Store(&err)
		}
		if err == nil && ctx.Err() == nil && !once {
			once = true
			close(done)
			stop()
		}
		return err
	}, shard)
	if err != nil {
		return err
	}
	err = e.Run(run)
	select {
	case <-done:
		return err
	default:
	}
	if p := last.Load(); p != nil {
		err = errors.Join(*p, err)
	}
	return errors.Join(context.Cause(ctx), err)
}

// isStop reports whether err says no more than that ctx, a handler's, has ended.
func isStop(ctx context.Context, err error) bool {
	return ctx.Err() != nil && (errors.Is(err, ctx.Err()) || errors.Is(err, context.Cause(ctx)))
}

package core

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/tenure-go/tenure/internal/goexit"
)

var errNoHandler = fmt.Errorf("tenure: %w: the handler is nil: give the function that does the work", ErrInvalid)

// RunSingleton runs h on at most one member of the namespace at a time, until h has finished its
// work. If h returns nil before its context has ended, RunSingleton gives up the shard and returns
// nil. If h returns an error or loses its lease, all members contend for the shard again. After an
// error, this member first waits for a back-off.
//
// If ctx ends first, RunSingleton asks h to stop, gives up the shard, and returns ctx's error.
// RunSingleton joins that error with h's last error, if any. If the shutdown failed, RunSingleton
// also joins Run's error. If b is closed first, the error matches ErrClosed. The caller closes b
// after RunSingleton has returned. Each other member continues until its own h returns nil. For
// work that one member does for all members, use [RunOnce].
//
// If an argument is invalid, RunSingleton does nothing, and the error matches ErrInvalid.
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
	var last atomic.Pointer[error] // a stuck handler may return after Run has returned
	err = e.Contend(func(ctx context.Context, lease *Lease) error {
		err := goexit.Call(func() error { return h(ctx, lease) })
		keepLast(&last, ctx, err)
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

// isStop reports whether a handler's error means only that its context has ended.
func isStop(ctx context.Context, err error) bool {
	return ctx.Err() != nil && (errors.Is(err, ctx.Err()) || errors.Is(err, context.Cause(ctx)))
}

// keepLast keeps a handler's error, unless it means only that the handler's context has ended.
func keepLast(last *atomic.Pointer[error], ctx context.Context, err error) {
	if isStop(ctx, err) {
		last.Store(nil)
	} else {
		last.Store(&err)
	}
}

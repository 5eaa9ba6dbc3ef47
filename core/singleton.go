package core

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/tenure-go/tenure/internal/goexit"
)

var errNoHandler = fmt.Errorf("tenure: %w: the handler is nil: give the function that does the work", ErrInvalid)

// RunSingleton runs h on at most one member of the namespace at a time, until h has done its work.
// If h returns nil before its context has ended, RunSingleton gives the shard back and returns nil.
// If h returns an error or loses its lease, all members contend for the shard again. After an
// error, this member waits for a back-off first.
//
// If ctx ends first, RunSingleton asks h to stop and gives the shard back. It returns ctx's error,
// joined with the last error of h, if any. If something could not be given back, it also joins
// Run's error. If b is closed first, the error matches ErrClosed. The caller closes b. RunSingleton
// continues in the other members: each member keeps running h until its own call of h returns nil.
// [RunOnce] is for work that one member does for all.
//
// If an argument is invalid, the error matches ErrInvalid and nothing is done.
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

// isStop reports whether err says only that ctx, a handler's context, has ended.
func isStop(ctx context.Context, err error) bool {
	return ctx.Err() != nil && (errors.Is(err, ctx.Err()) || errors.Is(err, context.Cause(ctx)))
}

// keepLast keeps a handler's error. It ignores an error that only reports the end of ctx, the
// handler's context.
func keepLast(last *atomic.Pointer[error], ctx context.Context, err error) {
	if isStop(ctx, err) {
		last.Store(nil)
	} else {
		last.Store(&err)
	}
}

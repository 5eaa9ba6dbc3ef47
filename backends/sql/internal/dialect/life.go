// Package dialect contains the parts that the dialects' stores share.
package dialect

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/tenure-go/tenure/core/driver"
)

// Life is the lifetime of a store, from opening to closing. A Life is safe for concurrent use.
type Life struct {
	ctx context.Context
	end context.CancelCauseFunc

	mu     sync.Mutex
	closed bool
	calls  sync.WaitGroup
}

func NewLife() *Life {
	l := new(Life)
	l.ctx, l.end = context.WithCancelCause(context.Background())
	return l
}

// Context returns a context that ends when the store is closed.
func (l *Life) Context() context.Context { return l.ctx }

// Enter begins a call. The returned context also ends when the store is closed. The caller must
// call the returned function when the call ends.
func (l *Life) Enter(ctx context.Context) (context.Context, func(), error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, nil, errClosed
	}
	l.calls.Add(1)
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(l.ctx, func() { cancel(errClosed) })
	return ctx, func() {
		stop()
		cancel(nil)
		l.calls.Done()
	}, nil
}

// End ends the life and waits for its calls. It reports whether it was called for the first time.
func (l *Life) End() bool {
	l.mu.Lock()
	first := !l.closed
	l.closed = true
	l.mu.Unlock()
	l.end(errClosed)
	l.calls.Wait()
	return first
}

// Cause adds the reason why the context ended to a call's error, because client libraries may omit
// it. The error of a call that was pending when the store closed stays unchanged, so it does not
// match ErrClosed.
func Cause(ctx context.Context, err error) error {
	if err == nil || ctx.Err() == nil || errors.Is(context.Cause(ctx), errClosed) {
		return err
	}
	return fmt.Errorf("%w: %w", err, driver.Ended(ctx))
}

var errClosed = fmt.Errorf("tenure: %w: open the backend again", driver.ErrClosed)

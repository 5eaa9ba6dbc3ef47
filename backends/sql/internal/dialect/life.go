// Package dialect is what the stores of the dialects beside it share.
package dialect

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/tenure-go/tenure/core/driver"
)

// Life is the time between the opening and the closing of a store. Safe for
// concurrent use.
type Life struct {
	ctx context.Context
	end context.CancelCauseFunc

	mu     sync.Mutex
	closed bool
	calls  sync.WaitGroup
}

// NewLife begins one.
func NewLife() *Life {
	l := new(Life)
	l.ctx, l.end = context.WithCancelCause(context.Background())
	return l
}

// Context is done when the life ends.
func (l *Life) Context() context.Context { return l.ctx }

// Enter begins a call: the context that it returns also ends with the life. The
// function that it returns ends the call, and must be called.
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

// End ends the life, waits for its calls, and reports whether it was the first
// to do so.
func (l *Life) End() bool {
	l.mu.Lock()
	first := !l.closed
	l.closed = true
	l.mu.Unlock()
	l.end(errClosed)
	l.calls.Wait()
	return first
}

// Cause adds to the error of a call why its context ended, which client libraries
// do not always say. A call that was under way when the store closed is not
// ErrClosed.
func Cause(ctx context.Context, err error) error {
	if err == nil || ctx.Err() == nil || errors.Is(context.Cause(ctx), errClosed) {
		return err
	}
	return fmt.Errorf("%w: %w", err, driver.Ended(ctx))
}

var errClosed = fmt.Errorf("tenure: %w: open the backend again", driver.ErrClosed)

// Package dialect contains the parts that the dialects' stores share.
package dialect

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/tenure-go/tenure/core/driver"
)

// Life is the time from the opening of a store to its closing. It is safe for concurrent use.
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

// Context returns a context that ends with the life.
func (l *Life) Context() context.Context { return l.ctx }

// Enter begins a call. The returned context also ends with the life. The returned function ends the
// call, and must be called.
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

// End ends the life and waits for its calls. It reports whether it was the first to do so.
func (l *Life) End() bool {
	l.mu.Lock()
	first := !l.closed
	l.closed = true
	l.mu.Unlock()
	l.end(errClosed)
	l.calls.Wait()
	return first
}

// Cause adds to a call's error why its context ended, because client libraries may omit that. A
// call that was pending when the store closed does not get ErrClosed.
func Cause(ctx context.Context, err error) error {
	if err == nil || ctx.Err() == nil || errors.Is(context.Cause(ctx), errClosed) {
		return err
	}
	return fmt.Errorf("%w: %w", err, driver.Ended(ctx))
}

var errClosed = fmt.Errorf("tenure: %w: open the backend again", driver.ErrClosed)

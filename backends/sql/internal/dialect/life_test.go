package dialect

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/tenure-go/tenure/core/driver"
)

// TestCause: errors.Is finds the reason why a caller gave up, except a reason that would claim that
// the call was not applied (E1).
func TestCause(t *testing.T) {
	t.Parallel()
	lost, reason := errors.New("connection lost"), errors.New("a reason")
	for _, c := range []struct {
		cause   error
		matches bool
	}{{reason, true}, {nil, true}, {driver.ErrSessionLost, false}, {&driver.FencedError{}, false}, {errClosed, false}} {
		ctx, cancel := context.WithCancelCause(t.Context())
		if err := Cause(ctx, lost); err != lost {
			t.Errorf("before the end: %v", err)
		}
		cancel(c.cause)
		err := Cause(ctx, lost)
		if !errors.Is(err, lost) || !driver.Unknown(err) || c.cause != nil && errors.Is(err, c.cause) != c.matches {
			t.Errorf("because of %v: %v", c.cause, err)
		}
		if ended := driver.Ended(ctx); !errors.Is(ended, context.Canceled) ||
			c.cause != nil && !strings.Contains(ended.Error(), c.cause.Error()) {
			t.Errorf("because of %v the context ended with: %v", c.cause, ended)
		}
	}
}

package postgres

import (
	"context"
	"errors"
	"runtime"
	"testing"

	"github.com/tenure-go/tenure/internal/goexit"
)

// TestPasswordGoexit: a function that ends its goroutine fails the connection, and no caller waits
// in vain.
func TestPasswordGoexit(t *testing.T) {
	t.Parallel()
	b, err := Open(t.Context(), "postgres://u@127.0.0.1:1/d", "app", &Options{Password: func(context.Context) (string, error) { runtime.Goexit(); return "", nil }})
	if !errors.Is(err, goexit.Err) {
		t.Errorf("%v, %v", b, err)
	}
}

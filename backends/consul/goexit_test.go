package consul

import (
	"context"
	"errors"
	"runtime"
	"testing"

	"github.com/tenure-go/tenure/internal/goexit"
)

// TestTokenGoexit: a function that ends its goroutine fails the call, and no caller waits forever.
func TestTokenGoexit(t *testing.T) {
	t.Parallel()
	b, err := Open(t.Context(), Config{Address: "127.0.0.1:1"}, "app", &Options{Token: func(context.Context) (string, error) { runtime.Goexit(); return "", nil }})
	if !errors.Is(err, goexit.Err) {
		t.Errorf("%v, %v", b, err)
	}
}

package fence

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/tenure-go/tenure/core/driver"
)

// Format returns a fence as one word, shard/session/token, for a header, a metadata field or a
// column. Parse parses this form.
func Format(f driver.Fence) string {
	return string(f.Shard) + "/" + string(f.Session) + "/" + strconv.FormatInt(int64(f.Token), 10)
}

// Parse parses a fence in the form that Format returns. The error matches driver.ErrInvalid.
func Parse(s string) (driver.Fence, error) {
	parts := strings.SplitN(s, "/", 4)
	if len(s) > 512 || len(parts) != 3 {
		return driver.Fence{}, fmt.Errorf("tenure: %w: a fence is written shard/session/token", driver.ErrInvalid)
	}
	token, err := strconv.ParseInt(parts[2], 10, 64)
	if err != nil || strconv.FormatInt(token, 10) != parts[2] {
		return driver.Fence{}, fmt.Errorf("tenure: %w: the token of a fence is a positive decimal number",
			driver.ErrInvalid)
	}
	f := driver.Fence{Shard: driver.ShardID(parts[0]), Session: driver.SessionID(parts[1]), Token: driver.Token(token)}
	return f, driver.CheckFence(f)
}

type contextKey struct{}

// NewContext returns a context that carries a fence to Transport and to the interceptors of package
// fencegrpc. A lease's handler first calls NewContext with the lease's fence.
func NewContext(ctx context.Context, f driver.Fence) context.Context {
	return context.WithValue(ctx, contextKey{}, f)
}

// FromContext returns the fence that the context carries. In a request's handler, this is the fence
// that the mark admitted.
func FromContext(ctx context.Context) (f driver.Fence, ok bool) {
	f, ok = ctx.Value(contextKey{}).(driver.Fence)
	return f, ok
}

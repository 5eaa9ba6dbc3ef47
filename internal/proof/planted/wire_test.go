package planted_test

import (
	"context"
	"slices"
	"sync"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/proof/intercept"
	"github.com/tenure-go/tenure/internal/virtual"
)

// A wire is between a member and its store. It changes nothing, unless a fault is planted.
type wire struct {
	driver.Backend
	host virtual.Host

	mu     sync.Mutex          //nolint:unused // of the faults
	views  int                 //nolint:unused // likewise
	shards []driver.ShardState //nolint:unused // likewise
}

// newWire returns b behind a wire.
func newWire(b driver.Backend) *wire {
	w := new(wire)
	w.Backend, w.host = intercept.Wrap(b, w.around), b.(virtual.Host)
	return w
}

// Process implements virtual.Host.
func (w *wire) Process() *virtual.Process { return w.host.Process() }

func (w *wire) around(ctx context.Context, c *intercept.Call, proceed func(context.Context) error) error {
	return proceed(ctx)
}

var _ = slices.Reverse[[]int] // for the faults

package enginetest

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/tenure-go/tenure/backends/sql/internal/engine"
	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/proof/ample"
)

// CheckPings checks that a ping succeeds while other calls hold all of the store's read
// connections, whose number is conns (rule E4).
func CheckPings(t *testing.T, b driver.Backend, st engine.Store, conns int) {
	t.Helper()
	hold, release := context.WithCancel(t.Context())
	var held sync.WaitGroup
	defer held.Wait()
	defer release()
	in := make(chan struct{}, conns)
	for range conns {
		held.Go(func() {
			_ = st.Read(hold, func(ctx context.Context, _, _ *engine.Tx) error {
				in <- struct{}{}
				<-ctx.Done()
				return ctx.Err()
			})
		})
	}
	ctx, cancel := context.WithTimeout(t.Context(), ample.Time)
	defer cancel()
	for range conns {
		select {
		case <-in:
		case <-ctx.Done():
			t.Fatal("not all of the connections for reads could be held")
		}
	}
	short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	if _, err := b.Get(short, "s", "k"); err == nil {
		t.Errorf("another read passes beside %d that hold their connections", conns)
	}
	if _, err := b.Get(ctx, driver.PingShard, "0"); err != nil {
		t.Errorf("a ping beside reads that hang: %v", err)
	}
}

package sqlfault

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/proof/ample"
)

// CheckUntold checks that a reader finds a change without a hint (O2). After a quiet time with only
// heartbeats, a process that cannot send hints to the reader changes a record. Each function in
// before brings the reader to a different starting point for the check.
func CheckUntold(t *testing.T, writer, reader driver.Backend, before ...func()) {
	t.Helper()
	s := Join(t, writer, "n1")
	granted, _ := Acquire(t, s, Claims(1))
	fence := granted[0].Fence
	for _, bring := range before {
		view, err := reader.Observe(t.Context(), driver.ObserveQuery{})
		if err != nil {
			t.Fatal(err)
		}
		type seen struct {
			view *driver.View
			err  error
		}
		observed := make(chan seen, 1)
		ctx, cancel := context.WithTimeout(t.Context(), ample.Time)
		bring()
		go func() {
			v, err := reader.Observe(ctx, driver.ObserveQuery{Since: view.Cursor})
			observed <- seen{v, err}
		}()
		time.Sleep(200 * time.Millisecond) // after the reader's first look
		res, err := s.Transfer(t.Context(), []driver.Transfer{{Fence: fence, To: s.ID()}})
		if err != nil || res[0].Err != nil {
			t.Fatal(res, err)
		}
		fence = res[0].Fence
		got := <-observed
		cancel()
		switch {
		case errors.Is(got.err, context.DeadlineExceeded):
			t.Fatalf("O2: a change that no hint told of is not reported within %v", ample.Time)
		case got.err != nil:
			t.Fatal(got.err)
		case len(got.view.Shards) != 1 || got.view.Shards[0].Owner.Token != fence.Token:
			t.Fatalf("the view is %+v, want token %d", got.view, fence.Token)
		}
	}
}

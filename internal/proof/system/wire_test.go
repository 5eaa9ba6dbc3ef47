package system

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenure-go/tenure/internal/proof/intercept"
)

func TestWire(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWire(testTTL, 1)
		var made atomic.Int64
		do := func(context.Context) error { made.Add(1); return nil }
		const calls = 10_000
		lost := 0
		for range calls {
			if err := w.around(t.Context(), &intercept.Call{Op: intercept.Commit}, do); errors.Is(err, errLost) {
				lost++
			} else if err != nil {
				t.Fatal(err)
			}
		}
		atOnce := made.Load()
		time.Sleep(2 * testTTL)
		synctest.Wait()
		atLast := made.Load()
		for _, c := range []struct {
			what      string
			got, want int64
		}{
			{"lost on the way", calls - atLast, calls * requestsLost / outOfThousand},
			{"delivered late", atLast - atOnce, calls * requestsLate / outOfThousand},
			{"answered in vain", int64(lost) - (calls - atOnce), calls * repliesLost / outOfThousand},
		} {
			if c.got < c.want/2 || c.got > c.want*2 {
				t.Errorf("%d of %d calls were %s, want about %d", c.got, calls, c.what, c.want)
			}
		}
		for range 1000 {
			if err := w.around(t.Context(), &intercept.Call{Op: intercept.Close}, do); err != nil {
				t.Fatalf("a leaving member's call was disturbed: %v", err)
			}
		}
		w.settle()
		for range 1000 {
			if err := w.around(t.Context(), &intercept.Call{Op: intercept.Beat}, do); err != nil {
				t.Fatalf("disturbed when calm: %v", err)
			}
		}
		w.close()
	})
}

func TestWireDropsWhatIsLateAtTheEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWire(testTTL, 1)
		for range 1000 {
			_ = w.around(t.Context(), &intercept.Call{Op: intercept.Beat}, func(context.Context) error { return nil })
		}
		before := time.Now()
		w.close()
		if waited := time.Since(before); waited > 0 {
			t.Errorf("it waited %v for late calls", waited)
		}
	})
}

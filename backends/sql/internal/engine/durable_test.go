package engine

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestBarriersAreShared: a call is covered by a barrier that began after it, and by no other.
func TestBarriersAreShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newBarriers()
		var mu sync.Mutex
		begun, failed := 0, 0
		barrier := func(context.Context) error {
			mu.Lock()
			defer mu.Unlock()
			begun++
			n := begun
			mu.Unlock()
			time.Sleep(time.Second)
			mu.Lock()
			if n == barrierCalls+1 {
				return errors.New("the first one that many calls wait for")
			}
			return nil
		}
		counts := func() (int, int) {
			mu.Lock()
			defer mu.Unlock()
			return begun, failed
		}
		const calls = 1000
		var all sync.WaitGroup
		for range calls {
			all.Go(func() {
				if s.pass(t.Context(), barrier) != nil {
					mu.Lock()
					defer mu.Unlock()
					failed++
				}
			})
		}
		synctest.Wait()
		if under, _ := counts(); under != barrierCalls {
			t.Fatalf("%d barriers are under way; want %d", under, barrierCalls)
		}
		at := time.Now()
		all.Wait()
		// Running barriers cover only their own calls. Later barriers cover all calls.
		before, without := counts()
		if took := time.Since(at); before > 3*barrierCalls || without != 1 || took > 3*time.Second {
			t.Errorf("%d calls had %d barriers, %d failed, in %v", calls, before, without, took)
		}
		err := s.pass(t.Context(), barrier)
		if after, _ := counts(); err != nil || after != before+1 {
			t.Errorf("a later call: %v, %d barriers; want one of its own", err, after-before)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		for range barrierCalls {
			all.Go(func() { _ = s.pass(t.Context(), func(context.Context) error { time.Sleep(time.Minute); return nil }) })
		}
		synctest.Wait()
		if err := s.pass(ctx, barrier); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a call that cannot wait: %v", err)
		}
		all.Wait()
	})
}

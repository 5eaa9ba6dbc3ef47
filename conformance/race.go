package conformance

import (
	"context"
	"math/rand/v2"
	"runtime"
	"sync"
	"time"
)

// The number of calls to round is limited. The calls stop at a failure or, after the first few,
// when the time budget is spent. [Harness.Long] multiplies both limits by 20.
func (f *fixture) rounds(most int, budget time.Duration, round func(i int)) {
	const least = 8
	if f.h.Long {
		most, budget = most*20, budget*20
	}
	ctx, cancel := context.WithTimeout(f.ctx, budget)
	defer cancel()
	for i := range most {
		if f.failed() || f.ctx.Err() != nil || (i >= least && ctx.Err() != nil) {
			return
		}
		round(i)
	}
}

// together runs functions concurrently, and waits for all of them. Each function's goroutine first
// yields a random number of times.
func together(funcs ...func()) {
	var ready, done sync.WaitGroup
	ready.Add(len(funcs))
	for _, fn := range funcs {
		done.Go(func() {
			ready.Done()
			ready.Wait()
			for range rand.N(4) {
				runtime.Gosched()
			}
			fn()
		})
	}
	done.Wait()
}

func times(n int, fn func(i int)) []func() {
	funcs := make([]func(), n)
	for i := range funcs {
		funcs[i] = func() { fn(i) }
	}
	return funcs
}

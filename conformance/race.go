package conformance

import (
	"context"
	"math/rand/v2"
	"runtime"
	"sync"
	"time"
)

// rounds calls round until it was called most times or the budget is spent, but at
// least a few times on a store of any speed, and stops at the first failure. Long
// multiplies both by 20.
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

// together runs functions at the same time, each after a random number of turns
// given to the others, and waits for all.
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

// times is n functions made by one.
func times(n int, fn func(i int)) []func() {
	funcs := make([]func(), n)
	for i := range funcs {
		funcs[i] = func() { fn(i) }
	}
	return funcs
}

// Package ample limits the waits of tests outside of synctest bubbles, so that no test fails
// because the machine is busy.
//
// A test waits for a condition with Wait. It asserts orders of events and counts of calls. If an
// elapsed time is itself the subject of a test, a Gauge judges it. internal/proof/archtest forbids
// every other comparison of an elapsed time, and lists the callers of AtMost.
package ample

import (
	"context"
	"iter"
	"os"
	"sync"
	"time"
)

// Time limits a wait for something that a working program does within a second on a quiet machine.
const Time = 2 * time.Minute

const poll = 5 * time.Millisecond

// T is the part of testing.TB that this package uses.
type T interface {
	Helper()
	Cleanup(func())
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
	Skipf(format string, args ...any)
}

// Wait polls cond until it returns true. After Time it fails the test with what, the name of the
// event that did not happen.
func Wait(t T, what string, cond func() bool) {
	t.Helper()
	if !Soon(context.Background(), cond) {
		t.Fatalf("after %v: %s", Time, what)
	}
}

// Soon polls cond and reports whether it returned true before Time was over and before ctx ended.
// It is for goroutines, which must not call Fatal, and for messages that the outcome makes.
func Soon(ctx context.Context, cond func() bool) bool {
	for end := time.Now().Add(Time); !cond(); {
		if ctx.Err() != nil || time.Now().After(end) {
			return false
		}
		time.Sleep(poll)
	}
	return true
}

// During yields about every pause, until d is over: for loads, and for conditions that must hold for a
// while. It yields once at least.
func During(d, pause time.Duration) iter.Seq[int] {
	return func(yield func(int) bool) {
		end := time.Now().Add(d)
		for n := 0; yield(n) && time.Now().Before(end); n++ {
			time.Sleep(pause)
		}
	}
}

// AtLeast fails the test if took is less than least. A slow machine cannot make it fail.
func AtLeast(t T, what string, took, least time.Duration) {
	t.Helper()
	if took < least {
		t.Errorf("%s took %v, want at least %v", what, took, least)
	}
}

// Gauge tells a slow program from a slow machine. Beside the test it runs a no-op of the same
// kind as the test's subject. Like Skip and Fatal, its method belongs into the test's goroutine.
type Gauge struct {
	t     T
	usual time.Duration

	mu      sync.Mutex
	began   time.Time // start of the running no-op; zero between two
	longest time.Duration
}

// Beside runs noop once, and then every 20 ms until the test ends. Usual is the longest time that
// noop takes on a quiet machine, with a margin. A nil noop sleeps for a millisecond: it
// notices a machine whose processors are busy.
func Beside(t T, usual time.Duration, noop func()) *Gauge {
	t.Helper()
	if noop == nil {
		noop = func() { time.Sleep(time.Millisecond) }
	}
	g := &Gauge{t: t, usual: usual}
	g.time(noop)
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			case <-time.After(20 * time.Millisecond):
				g.time(noop)
			}
		}
	}()
	t.Cleanup(func() {
		close(stop)
		<-done
	})
	return g
}

func (g *Gauge) time(noop func()) {
	g.mu.Lock()
	g.began = time.Now()
	g.mu.Unlock()
	noop()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.longest, g.began = max(g.longest, time.Since(g.began)), time.Time{}
}

// slowest returns the longest time of a no-op, the running one included.
func (g *Gauge) slowest() time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.began.IsZero() {
		return g.longest
	}
	return max(g.longest, time.Since(g.began))
}

// AtMost fails the test if took is more than most. If a no-op has taken longer than usual since
// Beside, AtMost skips the test instead, because the machine was too slow to tell.
func (g *Gauge) AtMost(what string, took, most time.Duration) {
	g.t.Helper()
	if took <= most {
		return
	}
	if slow := g.slowest(); slow > g.usual {
		note("machine too slow to tell: " + what)
		g.t.Skipf("machine too slow to tell: %s took %v, want at most %v; but a no-op took %v, usually at most %v",
			what, took, most, slow, g.usual)
	}
	g.t.Errorf("%s took %v, want at most %v; a no-op took at most %v", what, took, most, g.slowest())
}

// note appends a line to the file STEP_NOTES, which .ci/steps shows and counts at its end.
func note(line string) {
	if file, err := os.OpenFile(os.Getenv("STEP_NOTES"), os.O_APPEND|os.O_WRONLY, 0); err == nil {
		_, _ = file.WriteString(line + "\n")
		_ = file.Close()
	}
}

// Package ample limits how long tests outside synctest bubbles wait. The limits are generous enough
// that a busy machine does not make tests fail.
//
// A test waits for a condition with Wait, and then checks the order of events and the number of
// calls. To check how long an operation took, a test uses a Gauge. Package archtest forbids all
// other comparisons of elapsed times, and lists the callers of AtMost.
package ample

import (
	"context"
	"iter"
	"os"
	"sync"
	"time"
)

// Time limits each wait for an event. On a quiet machine, a working program causes such an event
// within a second.
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

// Wait polls cond until it returns true. After Time, Wait fails the test and reports what did not
// happen.
func Wait(t T, what string, cond func() bool) {
	t.Helper()
	if !Soon(context.Background(), cond) {
		t.Fatalf("after %v: %s", Time, what)
	}
}

// Soon polls cond until it returns true, Time has passed, or ctx has ended. Soon reports whether
// cond returned true. Use Soon in goroutines, which must not call Fatal, and in tests that report
// the outcome themselves.
func Soon(ctx context.Context, cond func() bool) bool {
	for end := time.Now().Add(Time); !cond(); {
		if ctx.Err() != nil || time.Now().After(end) {
			return false
		}
		time.Sleep(poll)
	}
	return true
}

// During yields at least once, and then about once per pause, until d has passed. Use During to
// produce load, or to check conditions that must stay true for a while.
func During(d, pause time.Duration) iter.Seq[int] {
	return func(yield func(int) bool) {
		end := time.Now().Add(d)
		for n := 0; yield(n) && time.Now().Before(end); n++ {
			time.Sleep(pause)
		}
	}
}

// AtLeast fails the test if took is less than least. A slow machine never causes this failure.
func AtLeast(t T, what string, took, least time.Duration) {
	t.Helper()
	if took < least {
		t.Errorf("%s took %v, want at least %v", what, took, least)
	}
}

// Gauge distinguishes a slow program from a slow machine. During the test, a Gauge repeatedly runs
// a no-op that is similar to the test's subject. Like Skip and Fatal, AtMost may be called only in
// the test's goroutine.
type Gauge struct {
	t     T
	usual time.Duration

	mu      sync.Mutex
	began   time.Time // start of the running no-op; zero if none runs
	longest time.Duration
}

// Beside runs noop once, and then every 20 ms until the test ends. Set usual to the longest time
// that noop takes on a quiet machine, plus a margin. If noop is nil, Beside uses a no-op that
// sleeps for a millisecond, which detects busy processors.
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

// slowest returns the longest time that a no-op has taken, including the running no-op.
func (g *Gauge) slowest() time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.began.IsZero() {
		return g.longest
	}
	return max(g.longest, time.Since(g.began))
}

// AtMost fails the test if took exceeds most. If a no-op has taken longer than usual since Beside
// was called, AtMost skips the test instead, because the machine was too slow for a verdict.
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

// note appends a line to the file given by the variable STEP_NOTES. At the end, .ci/steps shows and
// counts these lines.
func note(line string) {
	if file, err := os.OpenFile(os.Getenv("STEP_NOTES"), os.O_APPEND|os.O_WRONLY, 0); err == nil {
		_, _ = file.WriteString(line + "\n")
		_ = file.Close()
	}
}

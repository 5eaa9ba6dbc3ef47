package certify

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"

	"github.com/tenure-go/tenure/conformance"
)

// runner runs functions of package conformance outside of go test, as package testing does. A
// subtest that calls Parallel continues when the function of its parent has returned.
type runner struct {
	slots chan struct{}         // each parallel subtest takes one
	ended func(name string)     // called after each subtest
	scrub func(s string) string // applied to messages
}

func newRunner(parallel int, ended func(string), scrub func(string) string) *runner {
	return &runner{slots: make(chan struct{}, parallel), ended: ended, scrub: scrub}
}

// do runs f as a test, and returns the messages of its failures.
func (r *runner) do(ctx context.Context, name string, f func(conformance.T)) []string {
	root := &test{runner: r, outer: ctx, name: name, done: make(chan struct{})}
	root.do(f)
	return root.failures
}

// test is the T of one test. Safe for concurrent use.
type test struct {
	runner *runner
	outer  context.Context
	name   string
	parked chan struct{} // closed by Parallel
	resume chan struct{} // closed when the parent's function has returned
	done   chan struct{} // closed when the test and its subtests have ended

	// The fields below are used only by the test's goroutine.
	ctx  context.Context
	slot bool // it has a slot

	mu       sync.Mutex
	failures []string
	cleanup  []func()
	waiting  []*test // subtests that have called Parallel
}

func (t *test) Name() string             { return t.name }
func (t *test) Context() context.Context { return t.ctx }
func (t *test) Helper()                  {}
func (t *test) Logf(string, ...any)      {}

func (t *test) Parallel() {
	if t.parked == nil {
		return // the root has no parent
	}
	close(t.parked)
	<-t.resume
	t.runner.slots <- struct{}{}
	t.slot = true
}

func (t *test) Errorf(format string, args ...any) {
	message := t.runner.scrub(fmt.Sprintf(format, args...))
	t.mu.Lock()
	defer t.mu.Unlock()
	t.failures = append(t.failures, message)
}

func (t *test) Fatalf(format string, args ...any) {
	t.Errorf(format, args...)
	runtime.Goexit()
}

func (t *test) Skipf(string, ...any) { runtime.Goexit() }

func (t *test) Cleanup(f func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.cleanup = append(t.cleanup, f)
}

func (t *test) failed() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.failures) > 0
}

// Run runs a subtest, unless the context has ended.
func (t *test) Run(name string, f func(conformance.T)) bool {
	if t.ctx.Err() != nil {
		return true
	}
	child := &test{runner: t.runner, outer: t.ctx, name: t.name + "/" + name,
		parked: make(chan struct{}), resume: make(chan struct{}), done: make(chan struct{})}
	go func() {
		child.do(f)
		t.take(child)
		t.runner.ended(child.name)
		close(child.done)
	}()
	select {
	case <-child.parked:
		t.mu.Lock()
		defer t.mu.Unlock()
		t.waiting = append(t.waiting, child)
		return true
	case <-child.done:
		return !child.failed()
	}
}

// take adds the failures of a subtest.
func (t *test) take(child *test) {
	child.mu.Lock()
	failures := slices.Clone(child.failures)
	child.mu.Unlock()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.failures = append(t.failures, failures...)
}

// do runs f, then the subtests that wait for its end, and then the functions given to Cleanup, the
// last first.
func (t *test) do(f func(conformance.T)) {
	ctx, cancel := context.WithCancel(t.outer)
	defer cancel()
	t.ctx = ctx
	t.call(func() {
		if t.parked == nil || t.outer.Err() == nil {
			f(t)
		}
	})
	t.mu.Lock()
	waiting := t.waiting
	t.mu.Unlock()
	for _, child := range waiting {
		close(child.resume)
	}
	for _, child := range waiting {
		<-child.done
	}
	cancel()
	for {
		t.mu.Lock()
		n := len(t.cleanup)
		if n == 0 {
			t.mu.Unlock()
			break
		}
		last := t.cleanup[n-1]
		t.cleanup = t.cleanup[:n-1]
		t.mu.Unlock()
		t.call(last)
	}
	if t.slot {
		<-t.runner.slots
	}
}

// call calls f in a goroutine, because Fatalf and Skipf end it.
func (t *test) call(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			if p := recover(); p != nil {
				t.Errorf("panicked: %v\n%s", p, debug.Stack())
			}
		}()
		f()
	}()
	<-done
}

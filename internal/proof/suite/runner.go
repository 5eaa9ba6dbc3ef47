package suite

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
)

// Runner runs the suites outside go test, as package testing would. A subtest that calls Parallel
// pauses until its parent's function has returned.
type Runner struct {
	slots chan struct{} // each parallel subtest takes one
	ended func(name string)
	scrub func(s string) string
}

// NewRunner returns a Runner that runs up to parallel subtests at the same time. When a subtest
// ends, the Runner calls ended with its name. The Runner applies scrub to messages.
func NewRunner(parallel int, ended func(string), scrub func(string) string) *Runner {
	return &Runner{slots: make(chan struct{}, parallel), ended: ended, scrub: scrub}
}

// Do runs f as a test, and returns the failure messages. After ctx has ended, Do starts no further
// subtests.
func (r *Runner) Do(ctx context.Context, name string, f func(T)) []string {
	root := &test{runner: r, outer: ctx, name: name, done: make(chan struct{})}
	root.do(f)
	return root.failures
}

// test implements T for one test. A test is safe for concurrent use.
type test struct {
	runner *Runner
	outer  context.Context
	name   string
	parked chan struct{} // closed by Parallel
	resume chan struct{} // closed when the parent's function has returned
	done   chan struct{} // closed when the test and its subtests have ended

	// Only the test's goroutine uses the fields below.
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
func (t *test) Run(name string, f func(T)) bool {
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

// do runs f, and then the subtests that are waiting for f to end. Finally, it calls the functions
// passed to Cleanup, in reverse order.
func (t *test) do(f func(T)) {
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

// call calls f in a separate goroutine, because Fatalf and Skipf end that goroutine.
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

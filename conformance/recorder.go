package conformance

import (
	"context"
	"runtime"
	"sync"
)

// recorder is the T of Check. It runs subtests in sequence, and leaves it to the report to show
// failures.
type recorder struct {
	ctx    context.Context
	cancel context.CancelFunc
	name   string

	mu      sync.Mutex
	failed  bool
	cleanup []func()
}

func (r *recorder) Name() string             { return r.name }
func (r *recorder) Context() context.Context { return r.ctx }
func (r *recorder) Helper()                  {}
func (r *recorder) Parallel()                {}
func (r *recorder) Logf(string, ...any)      {}

func (r *recorder) Errorf(string, ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failed = true
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	runtime.Goexit()
}

func (r *recorder) Skipf(string, ...any) { runtime.Goexit() }

func (r *recorder) Cleanup(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cleanup = append(r.cleanup, f)
}

func (r *recorder) Run(name string, f func(T)) bool {
	child := &recorder{ctx: r.ctx, name: r.name + "/" + name}
	child.do(f)
	if child.failed {
		r.Errorf("")
	}
	return !child.failed
}

// do runs f in a goroutine, because Fatalf and Skipf end it. Afterwards, it runs the functions
// given to Cleanup, the last one first.
func (r *recorder) do(f func(T)) {
	r.ctx, r.cancel = context.WithCancel(r.ctx)
	r.wait(func() { f(r) })
	r.cancel()
	for len(r.cleanup) > 0 {
		last := r.cleanup[len(r.cleanup)-1]
		r.cleanup = r.cleanup[:len(r.cleanup)-1]
		r.wait(last)
	}
}

func (r *recorder) wait(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	<-done
}

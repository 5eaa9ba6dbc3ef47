package conformance

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"time"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/proof/ample"
)

// patience is how long a case waits for something that a working backend does immediately.
func (f *fixture) patience() time.Duration { return f.h.timeout() / 6 }

// prompt returns the time limit for news: the poll period plus the result of patience. After a
// quiet time, the poll period may be longer. A quiet store with notifications may poll less than
// twice a second, but must not delay news.
func (f *fixture) prompt(b driver.Backend) time.Duration {
	l := b.Info().Limits
	return max(l.PollPeriod, min(l.IdlePollPeriod, 500*time.Millisecond)) + f.patience()
}

// eventually calls ok every few milliseconds, and reports whether ok returned true within the
// limit.
func (f *fixture) eventually(bound time.Duration, ok func() bool) bool {
	deadline := time.NewTimer(bound)
	defer deadline.Stop()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-deadline.C:
			return ok()
		case <-f.ctx.Done():
			return false
		case <-tick.C:
		}
	}
	return true
}

// If wrong describes a mistake, the case fails. The watch lasts long enough for pending requests to
// arrive.
func (f *fixture) never(r rule, wrong func() string) {
	f.t.Helper()
	for range ample.During(150*time.Millisecond, 2*time.Millisecond) {
		if what := wrong(); what != "" {
			f.fail(r, "%s", what)
		}
	}
}

// call is a backend call that runs in its own goroutine.
type call struct {
	goroutine string // the beginning of the goroutine's stack
	answer    chan error
}

// begin makes a call in a new goroutine, and returns when that goroutine is running.
func begin(do func() error) *call {
	c, running := &call{answer: make(chan error, 1)}, make(chan string)
	go func() {
		stack := make([]byte, 64)
		name, _, _ := strings.Cut(string(stack[:runtime.Stack(stack, false)]), "[")
		running <- name
		c.answer <- do()
	}()
	c.goroutine = <-running
	return c
}

// The result is true if the call has been answered or its goroutine is waiting.
func (c *call) waits() bool {
	_, state, found := strings.Cut("\n"+stacks(), "\n"+c.goroutine+"[")
	return !found || !strings.HasPrefix(state, "run") // the state is running or runnable
}

// The results show whether the call has been answered, and with which error.
func (c *call) early() (bool, error) {
	select {
	case err := <-c.answer:
		return true, err
	default:
		return false, nil
	}
}

// The case waits for the answer to a call. If no answer arrives, the case fails with the message.
func (f *fixture) answered(c *call, r rule, format string, args ...any) error {
	f.t.Helper()
	limit := time.NewTimer(f.patience())
	defer limit.Stop()
	select {
	case err := <-c.answer:
		return err
	case <-limit.C:
		f.fail(r, format, args...)
		return nil
	}
}

// bell is a member whose heartbeats show how far a backend's readers have read. Counting calls
// would not be enough, because readers of a backend may share reads.
type bell struct {
	*member
	other *mirror // a reader of that backend, which asks for the bell's heartbeats
	rung  int
}

// The bell joins at the first call, so readers that need it must begin later.
func (f *fixture) bell(b driver.Backend) *bell {
	f.t.Helper()
	if f.ringer == nil {
		f.ringer = f.joinOn(f.read(), "bell")
	}
	return &bell{member: f.ringer, other: f.watch(b)}
}

// The method returns once the readers are waiting, even if only for the answer to their first read.
func (f *fixture) waiting(readers ...*call) {
	f.t.Helper()
	for _, r := range readers {
		if !f.eventually(f.patience(), r.waits) {
			f.setup("wait with the readers", errors.New("one does not wait"))
		}
	}
}

// The method returns when these readers have seen all earlier changes and are waiting. To detect
// this, it sends heartbeats that only another reader of the same backend requested. Two heartbeats
// are needed, because readers of a polled store may take turns.
func (b *bell) looked(readers ...*call) {
	b.f.t.Helper()
	b.other.beats[b.ID()], _ = b.f.beatOf(b.ID())
	for range 2 {
		before := b.other.beats[b.ID()]
		b.beat()
		if !b.other.until(func() bool { return b.other.beats[b.ID()] != before }) {
			b.f.setup("wait with the readers", errors.New("a heartbeat that was asked for is not reported"))
		}
	}
	b.f.waiting(readers...)
}

// ring changes a record, which wakes every view reader.
func (b *bell) ring() driver.ShardID {
	b.f.t.Helper()
	b.rung++
	shard := driver.ShardID(fmt.Sprint("bell-", b.rung, "-", newID()[:8]))
	b.acquire(shard)
	return shard
}

// ruled checks an elapsed time against a rule.
type ruled struct {
	f    *fixture
	rule rule
}

func (r ruled) Helper()             { r.f.t.Helper() }
func (r ruled) Cleanup(done func()) { r.f.t.Cleanup(done) }
func (r ruled) Errorf(format string, args ...any) {
	r.f.t.Helper()
	r.f.broken(r.rule, format, args...)
}
func (r ruled) Fatalf(format string, args ...any) { r.f.t.Helper(); r.f.fail(r.rule, format, args...) }
func (r ruled) Skipf(format string, args ...any)  { r.f.skip(fmt.Sprintf(format, args...)) }

// gauge returns a Gauge for elapsed times under a rule. Its no-op pings the store through a backend
// that makes no other calls.
func (f *fixture) gauge(r rule) *ample.Gauge {
	f.t.Helper()
	b := f.open()
	return ample.Beside(ruled{f, r}, 100*time.Millisecond, func() { _, _ = b.Get(f.ctx, driver.PingShard, "0") })
}

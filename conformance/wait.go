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

// patience limits a wait for something that a working backend does immediately.
func (f *fixture) patience() time.Duration { return f.h.timeout() / 6 }

// prompt limits a wait for news: the poll period, after a quiet time too, and patience. A quiet
// store with notifications may poll less than twice a second, but that must not delay its news.
func (f *fixture) prompt(b driver.Backend) time.Duration {
	l := b.Info().Limits
	return max(l.PollPeriod, min(l.IdlePollPeriod, 500*time.Millisecond)) + f.patience()
}

// eventually checks ok every few milliseconds, and reports whether it became true within the limit.
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

// never watches for a while for something that must not happen. The time is long enough for a
// pending request to arrive, if no later request shows that it has arrived.
func (f *fixture) never(r Rule, wrong func() string) {
	f.t.Helper()
	for range ample.During(150*time.Millisecond, 2*time.Millisecond) {
		if what := wrong(); what != "" {
			f.fail(r, "%s", what)
		}
	}
}

// call is a call of a backend in its own goroutine.
type call struct {
	goroutine string // the beginning of its stack
	answer    chan error
}

// begin makes a call in a goroutine, which is running when begin returns.
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

// waits reports whether the call has been answered or its goroutine waits.
func (c *call) waits() bool {
	_, state, found := strings.Cut("\n"+stacks(), "\n"+c.goroutine+"[")
	return !found || !strings.HasPrefix(state, "run") // running, runnable
}

// early reports whether the call has been answered, and returns its error.
func (c *call) early() (bool, error) {
	select {
	case err := <-c.answer:
		return true, err
	default:
		return false, nil
	}
}

// answered waits for the answer to a call. If no answer comes, it fails with the message.
func (f *fixture) answered(c *call, rule Rule, format string, args ...any) error {
	f.t.Helper()
	limit := time.NewTimer(f.patience())
	defer limit.Stop()
	select {
	case err := <-c.answer:
		return err
	case <-limit.C:
		f.fail(rule, format, args...)
		return nil
	}
}

// bell is a member that shows the position of a backend's readers. It does not count calls,
// because readers of a backend may share reads.
type bell struct {
	*member
	other *mirror // a reader of that backend, which asks for the bell's heartbeats
	rung  int
}

// bell joins at the first call, so the readers that need it must begin later.
func (f *fixture) bell(b driver.Backend) *bell {
	f.t.Helper()
	if f.ringer == nil {
		f.ringer = f.joinOn(f.read(), "bell")
	}
	return &bell{member: f.ringer, other: f.watch(b)}
}

// waiting returns once the readers wait, even if only for the answer to their first look.
func (f *fixture) waiting(readers ...*call) {
	f.t.Helper()
	for _, r := range readers {
		if !f.eventually(f.patience(), r.waits) {
			f.setup("wait with the readers", errors.New("one does not wait"))
		}
	}
}

// looked returns once these readers have seen earlier changes, and wait. To find out, it rings
// a heartbeat for which only another reader of their backend asked. It rings twice, because
// readers of a polled store may look in turns.
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

// ring changes a record, which wakes every reader of views.
func (b *bell) ring() driver.ShardID {
	b.f.t.Helper()
	b.rung++
	shard := driver.ShardID(fmt.Sprint("bell-", b.rung, "-", newID()[:8]))
	b.acquire(shard)
	return shard
}

// ruled judges an elapsed time by a rule.
type ruled struct {
	f    *fixture
	rule Rule
}

func (r ruled) Helper()             { r.f.t.Helper() }
func (r ruled) Cleanup(done func()) { r.f.t.Cleanup(done) }
func (r ruled) Errorf(format string, args ...any) {
	r.f.t.Helper()
	r.f.broken(r.rule, format, args...)
}
func (r ruled) Fatalf(format string, args ...any) { r.f.t.Helper(); r.f.fail(r.rule, format, args...) }
func (r ruled) Skipf(format string, args ...any)  { r.f.skip(fmt.Sprintf(format, args...)) }

// gauge judges elapsed times by a rule, and compares them with pings of the store from a backend
// that makes no other calls.
func (f *fixture) gauge(r Rule) *ample.Gauge {
	f.t.Helper()
	b := f.open()
	return ample.Beside(ruled{f, r}, 100*time.Millisecond, func() { _, _ = b.Get(f.ctx, driver.PingShard, "0") })
}

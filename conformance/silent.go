package conformance

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tenure-go/tenure/core/driver"
)

// beating sends heartbeats until stop is called, and counts those that succeed. Like core, it sends
// heartbeats while earlier ones are unanswered.
func (m *member) beating() (succeeded *atomic.Int64, stop func()) {
	const pace, outstanding = 50 * time.Millisecond, 12
	succeeded = new(atomic.Int64)
	ctx, cancel := context.WithCancel(m.f.ctx)
	var all sync.WaitGroup
	slots := make(chan struct{}, outstanding)
	all.Go(func() {
		tick := time.NewTicker(pace)
		defer tick.Stop()
		for ctx.Err() == nil {
			select {
			case slots <- struct{}{}:
				all.Go(func() {
					defer func() { <-slots }()
					if m.Beat(ctx) == nil {
						succeeded.Add(1)
					}
				})
			default:
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
			}
		}
	})
	return succeeded, func() {
		cancel()
		all.Wait()
	}
}

// silentServer drops all requests to each server in turn. Heartbeats must continue to succeed, and
// pending calls on the silent server must end before their deadlines.
func silentServer(f *fixture) {
	ctx, cancel := context.WithCancel(f.ctx)
	defer cancel()
	b, wires, err := f.store.OpenSeveral(ctx)
	f.setup("open on several servers", err)
	f.keep(b)
	m := f.joinOn(b, "a")
	fence := m.acquire("s")
	for i, w := range wires {
		if w.DropRequests == nil {
			f.skip("the harness lacks Wire.DropRequests")
		}
		heal := w.DropRequests()
		f.besideSilence(m, fence, i)
		heal()
	}
	for _, c := range f.toALease(m, fence) {
		for i, w := range wires {
			heal := w.DropRequests()
			f.afterDeadline(c, i)
			heal()
		}
	}
}

type callTo struct {
	name string
	do   func(ctx context.Context) error
}

// toALease returns the calls by which m's backend gets a lease. The fence belongs to a lease that m
// already holds.
func (f *fixture) toALease(m *member, fence driver.Fence) []callTo {
	return []callTo{
		{"a join", func(ctx context.Context) error {
			_, err := m.b.Join(ctx, f.newcomer(m.b, "late"))
			return err
		}},
		{"a read of the view", func(ctx context.Context) error {
			_, err := m.b.Observe(ctx, driver.ObserveQuery{})
			return err
		}},
		{"a read of a log", func(ctx context.Context) error {
			_, err := m.b.ReadLog(ctx, fence.Shard, 0, 0)
			return err
		}},
		{"a claim", func(ctx context.Context) error {
			return m.claimCtx(ctx, driver.Claim{Shard: "other"}).Err
		}},
	}
}

// afterDeadline makes calls, but sends no heartbeats, while server i is silent. If a call ends with
// its context, the next call must go to another server.
func (f *fixture) afterDeadline(c callTo, i int) {
	const tries = 20
	each := 500 * time.Millisecond
	for range tries {
		ctx, cancel := context.WithTimeout(f.ctx, each)
		err := c.do(ctx)
		cancel()
		if err == nil {
			return
		}
		each += each / 8 // a busy machine may take longer to answer
	}
	f.fail(ruleE4, "with server %d silent %s had no answer in %d tries, the last of %v", i, c.name, tries, each)
}

// besideSilence uses a session while server i is silent.
func (f *fixture) besideSilence(m *member, fence driver.Fence, i int) {
	bound := f.patience()
	calls := f.toALease(m, fence)
	ctx, cancel := context.WithCancel(f.ctx)
	defer cancel()
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	var ended atomic.Int64
	for _, c := range calls {
		all.Go(func() {
			_ = c.do(ctx) // the call goes to the silent server or to another server
			ended.Add(1)
		})
	}
	succeeded, stop := m.beating()
	defer stop()
	f.must(ruleE4, f.eventually(bound, func() bool { return succeeded.Load() > 0 }),
		"with server %d silent no heartbeat succeeded in %v, though several were sent", i, bound)
	f.must(ruleE4, f.eventually(bound, func() bool { return int(ended.Load()) == len(calls) }),
		"%d of %d calls still wait for server %d after %v, though heartbeats succeed", len(calls)-int(ended.Load()),
		len(calls), i, bound)
	for _, c := range calls {
		done := make(chan struct{})
		all.Go(func() {
			defer close(done)
			for ctx.Err() == nil {
				if c.do(ctx) == nil {
					return
				}
				time.Sleep(time.Millisecond)
			}
		})
		f.must(ruleE4, f.eventually(bound, func() bool {
			select {
			case <-done:
				return true
			default:
				return false
			}
		}), "%s is not answered beside server %d, which is silent, in %v", c.name, i, bound)
	}
}

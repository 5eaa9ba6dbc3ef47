package outage

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/proof/faultproxy"
)

// host is one elector with its own way to each server.
type host struct {
	*core.Elector
	ways []*faultproxy.Proxy // in the order of the servers
	stop context.CancelFunc  // asks Run to end
	b    driver.Backend
}

// contenders are hosts that contend for one shard. It notes each lapse and eviction,
// and when the shard was served.
type contenders struct {
	t     *testing.T
	ttl   time.Duration
	addrs []string
	hosts []*host

	mu      sync.Mutex
	changed chan struct{} // closed by the next event
	lapsed  []string      // node labels
	evicted []string
	serves  int         // host whose handler runs; -1: none
	lease   *core.Lease // of the handler that was called last
	since   time.Time
	longest time.Duration // without a handler, since it was last set to zero
	away    time.Duration // how long the store gave no answer in time, in all, since then
	answer  time.Time     // its last one
}

const contended = "s"

// contend runs n electors until the end of the test.
func contend(
	t *testing.T, addrs []string, n int, ttl time.Duration, open func(through []string) driver.Backend,
) *contenders {
	t.Helper()
	c := &contenders{t: t, ttl: ttl, addrs: addrs, changed: make(chan struct{}), serves: -1, since: time.Now()}
	for i := range n {
		h, through := c.host()
		c.hosts = append(c.hosts, h)
		b := open(through)
		node := fmt.Sprint("n", i)
		e, err := core.NewElector(b, &core.Options{Logger: slog.New(slog.DiscardHandler), TTL: ttl, Node: node, Hooks: core.Hooks{
			OnSession: func(e core.SessionEvent) { c.session(node, e.Kind) },
			OnPeer: func(e core.PeerEvent) {
				if e.Kind == core.PeerEvicted {
					c.note(func() { c.evicted = append(c.evicted, e.Peer.Node) })
				}
			},
		}})
		if err != nil {
			t.Fatal(err)
		}
		err = e.Contend(func(ctx context.Context, l *core.Lease) error {
			c.note(func() {
				c.lease = l
				if c.serves < 0 {
					c.longest = max(c.longest, time.Since(c.since))
				}
				c.serves = i
			})
			<-ctx.Done()
			c.note(func() {
				if c.serves == i {
					c.serves, c.since = -1, time.Now()
				}
			})
			return nil
		}, contended)
		if err != nil {
			t.Fatal(err)
		}
		h.Elector = e
		ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
		h.stop, h.b = stop, b
		done := make(chan error, 1)
		go func() { done <- e.Run(ctx) }()
		t.Cleanup(func() {
			stop()
			if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
				t.Errorf("%s: %v", node, err)
			}
		})
	}
	return c
}

// control asks the store until the end of the test, by a way that no fault of the test
// closes, and notes how long it had no answer: because the store was away, or the machine
// busy. It returns with the first answer: a control that never had one would excuse all.
func (c *contenders) control(ask func(context.Context) error) {
	c.t.Helper()
	ctx, stop := context.WithCancel(context.WithoutCancel(c.t.Context()))
	first, cancel := context.WithTimeout(ctx, patience)
	err := ask(first)
	for ; err != nil && first.Err() == nil; err = ask(first) {
		c.pass(c.ttl / 20)
	}
	cancel()
	if err != nil {
		stop()
		c.t.Fatalf("the control had no answer within %v: %v", patience, err)
	}
	c.note(func() { c.away, c.answer = 0, time.Now() })
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			if ask(ctx) == nil {
				c.mu.Lock()
				c.away = c.awayNow()
				c.answer = time.Now()
				c.mu.Unlock()
			}
			select {
			case <-time.After(c.ttl / 20):
			case <-ctx.Done():
			}
		}
	}()
	c.t.Cleanup(func() {
		stop()
		<-done
	})
}

// awayNow is how long the store gave no answer, up to now. Pauses shorter than a sixth
// of the TTL do not count: three of them in a row cost nobody a lease. The lock is held.
func (c *contenders) awayNow() time.Duration {
	if pause := time.Since(c.answer); pause > c.ttl/6 {
		return c.away + pause
	}
	return c.away
}

// past reads through a backend that reaches all servers.
func past(b driver.Backend) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := b.ReadLog(ctx, contended, 0, 0)
		return err
	}
}

func (c *contenders) session(node string, kind core.SessionEventKind) {
	if kind == core.SessionLapsed || kind == core.SessionLost {
		c.note(func() { c.lapsed = append(c.lapsed, fmt.Sprintf("%s: %s", node, kind)) })
	}
}

func (c *contenders) note(what func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	what()
	close(c.changed)
	c.changed = make(chan struct{})
}

// until waits until ok holds, and returns when it did.
func (c *contenders) until(what string, ok func() bool) time.Time {
	c.t.Helper()
	bound := time.NewTimer(3 * patience)
	defer bound.Stop()
	for {
		c.mu.Lock()
		held, changed := ok(), c.changed
		c.mu.Unlock()
		if held {
			return time.Now()
		}
		select {
		case <-changed:
		case <-time.After(c.ttl / 20):
		case <-bound.C:
			c.t.Fatalf("%s: not in %v; lapsed %v, evicted %v", what, 3*patience, c.lapsed, c.evicted)
		}
	}
}

// settled waits until all are trusted members that all know each other, the shard is
// served, and a heartbeat's interval has passed; forgets earlier notes; and returns the
// host that serves the shard.
func (c *contenders) settled() (holder int) {
	c.t.Helper()
	c.until("three trusted members and a leader", func() bool {
		for _, h := range c.hosts {
			if v := h.View(); !v.Trusted || len(v.Members) != len(c.hosts) || len(v.Silent) > 0 {
				return false
			}
		}
		return c.serves >= 0
	})
	c.pass(c.ttl / 2)
	c.until("a leader", func() bool {
		holder = c.serves
		return holder >= 0
	})
	c.note(func() { c.lapsed, c.evicted, c.longest, c.away = nil, nil, 0, 0 })
	return holder
}

// pass lets time pass that is part of a fault.
func (c *contenders) pass(d time.Duration) {
	select {
	case <-time.After(d):
	case <-c.t.Context().Done():
	}
}

// host has its own way to each server, at the addresses through.
func (c *contenders) host() (h *host, through []string) {
	c.t.Helper()
	h = &host{}
	for _, addr := range c.addrs {
		p, err := faultproxy.New(addr, nil)
		if err != nil {
			c.t.Fatal(err)
		}
		c.t.Cleanup(func() { _ = p.Close() }) // a cut connection may fail to close
		h.ways, through = append(h.ways, p), append(through, p.Addr())
	}
	return h, through
}

// used is the server to which a host sends most while an interval of heartbeats passes.
func (c *contenders) used(host int) int {
	before := c.hosts[host].sent()
	c.pass(c.ttl * 2 / 3)
	return c.hosts[host].mostSince(before)
}

// sent is how much was sent to each server.
func (h *host) sent() []int64 {
	var all []int64
	for _, p := range h.ways {
		all = append(all, p.Stats().Requests.Read)
	}
	return all
}

// mostSince is the server to which most was sent since.
func (h *host) mostSince(before []int64) int {
	after := h.sent()
	for i := range after {
		after[i] -= before[i]
	}
	return slices.Index(after, slices.Max(after))
}

// silence makes ways lose all that is sent, in both directions and without a reset,
// until the function that it returns is called.
func (c *contenders) silence(ways ...*faultproxy.Proxy) (heal func()) {
	set := func(f faultproxy.Faults) {
		for _, p := range ways {
			if err := p.Set(f); err != nil {
				c.t.Error(err)
			}
		}
	}
	set(faultproxy.BlackHole())
	return func() { set(faultproxy.Faults{}) }
}

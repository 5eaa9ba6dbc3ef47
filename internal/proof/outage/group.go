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
	"github.com/tenure-go/tenure/internal/proof/ample"
	"github.com/tenure-go/tenure/internal/proof/faultproxy"
)

// host is one Elector with a separate proxy for each server.
type host struct {
	*core.Elector
	ways []*faultproxy.Proxy // in the order of the servers
	stop context.CancelFunc  // makes Run end
	b    driver.Backend
}

// contenders are hosts that contend for one shard. They record lapses, evictions, and the times
// when the shard was served.
type contenders struct {
	t     *testing.T
	ttl   time.Duration
	addrs []string
	hosts []*host

	mu      sync.Mutex
	lapsed  []string // node labels
	evicted []string
	serves  int         // host whose handler runs; -1: none
	lease   *core.Lease // of the handler that was called last
	since   time.Time
	longest time.Duration // time without a handler, since it was last reset
	lost    time.Time     // first lapse or eviction since the reset
}

const contended = "s"

// contend runs n Electors until the end of the test.
func contend(
	t *testing.T, addrs []string, n int, ttl time.Duration, open func(through []string) driver.Backend,
) *contenders {
	t.Helper()
	c := &contenders{t: t, ttl: ttl, addrs: addrs, serves: -1, since: time.Now()}
	for i := range n {
		h, through := c.host()
		c.hosts = append(c.hosts, h)
		b := open(through)
		node := fmt.Sprint("n", i)
		e, err := core.NewElector(b, &core.Options{Logger: slog.New(slog.DiscardHandler), TTL: ttl, Node: node, Hooks: core.Hooks{
			OnEvent: func(e core.Event) { c.event(node, e) },
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

// answers queries the store until the test ends. It returns a function that reports the longest
// time without an answer since its previous call. The first query must succeed, because a query
// that always fails would excuse every outage.
func (c *contenders) answers(ask func(context.Context) error) (longest func() time.Duration) {
	c.t.Helper()
	ample.Wait(c.t, "the store does not answer", func() bool { return ask(c.t.Context()) == nil })
	var mu sync.Mutex
	last, most := time.Now(), time.Duration(0)
	ctx, stop := context.WithCancel(c.t.Context())
	var asking sync.WaitGroup
	asking.Go(func() {
		for ctx.Err() == nil {
			if ask(ctx) == nil {
				mu.Lock()
				most, last = max(most, time.Since(last)), time.Now()
				mu.Unlock()
			}
			select {
			case <-time.After(c.ttl / 20):
			case <-ctx.Done():
			}
		}
	})
	c.t.Cleanup(func() {
		stop()
		asking.Wait()
	})
	return func() time.Duration {
		mu.Lock()
		defer mu.Unlock()
		longest := max(most, time.Since(last))
		most = 0
		return longest
	}
}

func (c *contenders) event(node string, e core.Event) {
	switch e.Kind {
	case core.SessionLapsed, core.SessionLost:
		c.note(func() { c.lapsed = append(c.lapsed, fmt.Sprintf("%s: %s", node, e.Kind)); c.loses() })
	case core.PeerEvicted:
		c.note(func() { c.evicted = append(c.evicted, e.Peer.Node); c.loses() })
	default: // no shard is lost
	}
}

func (c *contenders) note(what func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	what()
}

// loses records the time of the first lapse or eviction. The caller holds the lock.
func (c *contenders) loses() {
	if c.lost.IsZero() {
		c.lost = time.Now()
	}
}

// No trust may have lapsed, and no member may have been evicted, since all hosts settled. If the
// machine was too slow for a verdict, the test is skipped.
func (c *contenders) keeps(machine *ample.Gauge, when string) {
	c.t.Helper()
	c.mu.Lock()
	lapsed, evicted, lost := c.lapsed, c.evicted, c.lost
	c.mu.Unlock()
	if !lost.IsZero() {
		machine.AtMost(fmt.Sprintf("%s: lapsed %q, evicted %q: the time since then", when, lapsed, evicted), time.Since(lost), 0)
	}
}

// The result is the time at which ok returned true.
func (c *contenders) until(what string, ok func() bool) time.Time {
	c.t.Helper()
	held := ample.Soon(c.t.Context(), func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return ok()
	})
	at := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if !held {
		c.t.Fatalf("%s: not in %v; lapsed %v, evicted %v", what, ample.Time, c.lapsed, c.evicted)
	}
	return at
}

// settled waits until all hosts are trusted members that know each other, the shard is served, and
// the interval between heartbeats has passed. It discards earlier records, and returns the host
// that serves the shard.
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
	c.note(func() { c.lapsed, c.evicted, c.longest, c.lost = nil, nil, 0, time.Time{} })
	return holder
}

// pass waits for d while a fault lasts.
func (c *contenders) pass(d time.Duration) {
	select {
	case <-time.After(d):
	case <-c.t.Context().Done():
	}
}

// The host has a separate proxy for each server, at the addresses in through.
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

// The result is the server to which a host sends the most bytes in a heartbeat interval.
func (c *contenders) used(host int) int {
	before := c.hosts[host].sent()
	c.pass(c.ttl * 2 / 3)
	return c.hosts[host].mostSince(before)
}

// sent returns the number of bytes sent to each server.
func (h *host) sent() []int64 {
	var all []int64
	for _, p := range h.ways {
		all = append(all, p.Stats().Requests.Read)
	}
	return all
}

// mostSince returns the server that has received the most bytes since the counts in before were
// taken.
func (h *host) mostSince(before []int64) int {
	after := h.sent()
	for i := range after {
		after[i] -= before[i]
	}
	return slices.Index(after, slices.Max(after))
}

// silence makes the given proxies lose all data in both directions, without a reset, until the
// returned function is called.
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

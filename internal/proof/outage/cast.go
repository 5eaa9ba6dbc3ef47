package outage

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/proof/ample"
	"github.com/tenure-go/tenure/internal/proof/faultproxy"
)

// Cast is a small group of members in one namespace that contend for one shard. Each member has a
// separate backend, which reaches each server through a separate proxy. A Cast can therefore make
// one server silent for all members, or all servers silent for one member. Neither side gets an
// error. Only one goroutine may call the methods of a Cast.
type Cast struct {
	t       testing.TB
	ttl     time.Duration
	members []*actor

	mu     sync.Mutex
	events []string
	owned  time.Time // when a member was last seen to own the shard
	gap    time.Duration
}

type actor struct {
	node    string
	backend driver.Backend
	elector *core.Elector
	proxies []*faultproxy.Proxy
	lease   atomic.Pointer[core.Lease] // lease of the handler that was called last
	began   atomic.Pointer[time.Time]  // when that handler was called
}

// castShard is the shard for which the members contend.
const castShard = "shard"

// NewCast runs n members until the test ends. The open function opens one member's backend. The
// backend must reach the servers at the addresses in through, which are in the same order.
func NewCast(
	t testing.TB, n int, ttl time.Duration, servers []string, open func(through []string) driver.Backend,
) *Cast {
	t.Helper()
	c := &Cast{t: t, ttl: ttl}
	for i := range n {
		m := &actor{node: fmt.Sprint("m", i)}
		var through []string
		for _, addr := range servers {
			p, err := faultproxy.New(addr, nil)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = p.Close() }) // a cut connection may fail to close
			m.proxies, through = append(m.proxies, p), append(through, p.Addr())
		}
		m.backend = open(through)
		c.members = append(c.members, m)
		c.run(m)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	var watching sync.WaitGroup
	watching.Go(func() { c.sample(ctx) })
	t.Cleanup(func() {
		stop()
		watching.Wait()
	})
	c.Settle()
	return c
}

func (c *Cast) run(m *actor) {
	c.t.Helper()
	e, err := core.NewElector(m.backend, &core.Options{Logger: slog.New(slog.DiscardHandler), TTL: c.ttl, Node: m.node, Hooks: core.Hooks{
		OnEvent: func(ev core.Event) {
			switch ev.Kind {
			case core.SessionLapsed, core.SessionLost, core.SessionHalted:
				c.event("%s: %s: %v", m.node, ev.Kind, ev.Err)
			case core.PeerEvicted:
				c.event("%s evicted %s", m.node, ev.Peer.Node)
			default: // it continues
			}
		},
	}})
	if err != nil {
		c.t.Fatal(err)
	}
	err = e.Contend(func(ctx context.Context, l *core.Lease) error {
		now := time.Now()
		m.lease.Store(l)
		m.began.Store(&now)
		<-ctx.Done()
		return nil
	}, castShard)
	if err != nil {
		c.t.Fatal(err)
	}
	m.elector = e
	ctx, stop := context.WithCancel(context.WithoutCancel(c.t.Context()))
	done := make(chan error, 1)
	go func() { done <- e.Run(ctx) }()
	c.t.Cleanup(func() {
		stop()
		if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
			c.t.Errorf("%s: %v", m.node, err)
		}
	})
}

func (c *Cast) event(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.events = append(c.events, fmt.Sprintf(format, args...))
}

func (c *Cast) sample(ctx context.Context) {
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	away := false
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		owner, now := c.owner(), time.Now()
		c.mu.Lock()
		switch {
		case owner >= 0 && !away: // regardless of when the last look was
			c.owned = now
		case !c.owned.IsZero():
			c.gap = max(c.gap, now.Sub(c.owned))
		}
		if owner >= 0 {
			c.owned = now
		}
		away = owner < 0
		c.mu.Unlock()
	}
}

// owner returns the member that may use its lease now, or -1.
func (c *Cast) owner() int {
	for i, m := range c.members {
		if l := m.lease.Load(); l != nil && l.Err() == nil {
			return i
		}
	}
	return -1
}

// Backend returns the backend of a member.
func (c *Cast) Backend(member int) driver.Backend { return c.members[member].backend }

// Settle waits until every member is trusted and knows all other members, a member owns the shard,
// and no hand-over is pending. Settle resets the results of Seen, and returns the owner.
func (c *Cast) Settle() (owner int) {
	c.t.Helper()
	calm := func() bool {
		for range ample.During(c.ttl/2, 5*time.Millisecond) {
			if owner = c.owner(); owner < 0 {
				return false
			}
			for _, m := range c.members {
				if v := m.elector.View(); !v.Trusted || len(v.Members) != len(c.members) || len(v.Silent) > 0 {
					return false
				}
			}
		}
		return true
	}
	if !ample.Soon(c.t.Context(), calm) {
		c.t.Fatalf("the members do not settle in %v: %+v", ample.Time, c.members[0].elector.View())
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.events, c.gap, c.owned = nil, 0, time.Time{}
	return owner
}

// Silence makes a server silent for every member until Heal.
func (c *Cast) Silence(server int) {
	c.t.Helper()
	for _, m := range c.members {
		c.set(m.proxies[server], faultproxy.BlackHole())
	}
}

// CutOff cuts a member off from all servers until Heal, as if the member's machine had died.
func (c *Cast) CutOff(member int) {
	c.t.Helper()
	for _, p := range c.members[member].proxies {
		c.set(p, faultproxy.BlackHole())
	}
}

// Heal ends the effects of Silence and CutOff.
func (c *Cast) Heal() {
	c.t.Helper()
	for _, m := range c.members {
		for _, p := range m.proxies {
			c.set(p, faultproxy.Faults{})
		}
	}
}

func (c *Cast) set(p *faultproxy.Proxy, f faultproxy.Faults) {
	c.t.Helper()
	if err := p.Set(f); err != nil {
		c.t.Fatal(err)
	}
}

// Takeover waits until a member other than former uses the shard, and returns the time since start.
func (c *Cast) Takeover(former int, start time.Time) time.Duration {
	c.t.Helper()
	var took time.Duration
	ample.Wait(c.t, "nobody took over", func() bool {
		for i, m := range c.members {
			if began := m.began.Load(); i != former && began != nil && began.After(start) {
				took = began.Sub(start)
				return true
			}
		}
		return false
	})
	return took
}

// Seen returns the events since the last Settle, and the longest time without an owner. Events are
// lapses of trust, lost or halted sessions, and evictions.
func (c *Cast) Seen() (events []string, gap time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]string(nil), c.events...), c.gap
}

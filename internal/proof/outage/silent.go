package outage

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/proof/faultproxy"
	"github.com/tenure-go/tenure/internal/proof/intercept"
	"github.com/tenure-go/tenure/internal/proof/servers"
)

// members is how many processes contend in the tests of silent servers.
const members = 3

// Silent takes one of the servers away from all processes, without a reset, for two
// TTLs, in each round the server that the holder uses. Nobody's trust may lapse, and
// nobody be evicted, in a round in which the store answered a process that reaches all
// its servers, and the machine let it ask. open opens a backend on addresses.
func Silent(t *testing.T, addrs []string, ttl time.Duration, rounds int, open func(through []string) driver.Backend) {
	t.Helper()
	c := contend(t, addrs, members, ttl, open)
	c.control(past(open(addrs)))
	judged := 0
	for attempt := 0; judged < rounds && attempt < 3*rounds; attempt++ {
		server := c.used(c.settled())
		heal := c.silence(c.to(server)...)
		c.pass(2 * ttl)
		heal()
		c.mu.Lock()
		lapsed, evicted, away := c.lapsed, c.evicted, c.awayNow()
		c.mu.Unlock()
		if away > 0 {
			t.Logf("the store or the machine was away for %v: lapsed %q, evicted %q", away, lapsed, evicted)
			continue
		}
		judged++
		if len(lapsed)+len(evicted) > 0 {
			t.Errorf("round %d, server %d silent for %v at a TTL of %v: lapsed %q, evicted %q; want none", judged,
				server, 2*ttl, ttl, lapsed, evicted)
		}
	}
	t.Logf("%d rounds at a TTL of %v", judged, ttl)
	if judged == 0 {
		t.Skip("in no round the machine was quiet enough to judge")
	}
}

// to is every host's way to a server.
func (c *contenders) to(server int) []*faultproxy.Proxy {
	var ways []*faultproxy.Proxy
	for _, h := range c.hosts {
		ways = append(ways, h.ways[server])
	}
	return ways
}

// EachTTL runs a test for 3 rounds at a TTL of one second; or, with rounds above 0, for
// as many at each of three TTLs beside each other.
func EachTTL(t *testing.T, rounds int, test func(t *testing.T, ttl time.Duration, rounds int)) {
	ttls := []time.Duration{time.Second, 3 * time.Second, 10 * time.Second}
	if rounds == 0 {
		ttls, rounds = ttls[:1], 3
	}
	for _, ttl := range ttls {
		t.Run(ttl.String(), func(t *testing.T) {
			t.Parallel()
			test(t, ttl, rounds)
		})
	}
}

// HolderDies cuts the holder off for good, without a reset, first alone and then
// together with the server that another member uses. A takeover takes one and a half
// TTLs at most, in a round in which the store and the machine were there, as in Silent;
// on a machine too busy for that when the holder dies alone, half a TTL more than then.
func HolderDies(
	t *testing.T, addrs []string, ttl time.Duration, rounds int, open func(through []string) driver.Backend,
) {
	t.Helper()
	c := contend(t, addrs, members, ttl, open)
	c.control(past(open(addrs)))
	var alone, together []float64 // in TTLs
	for attempt := 0; len(together) < rounds && attempt < 3*rounds; attempt++ {
		if took, ok := c.takeover(false); ok {
			alone = append(alone, took)
		}
		if took, ok := c.takeover(true); ok {
			together = append(together, took)
		}
	}
	slices.Sort(alone)
	slices.Sort(together)
	t.Logf("takeovers in TTLs of %v: alone %.2f, with a server %.2f", ttl, alone, together)
	if len(alone) == 0 || len(together) == 0 {
		t.Skip("in no round the machine was quiet enough to judge")
	}
	if worst, bound := slices.Max(together), max(1.5, slices.Max(alone)+0.5); worst > bound {
		t.Errorf("a takeover took %.2f TTLs when a server died with the holder, want %.2f at most", worst, bound)
	}
}

// Starts has a process start, and takes the server that it uses away from it, without a
// reset, just before it sends its first call of a kind on the way to its first lease: the
// join, the full read, the claim. It serves within two TTLs, in a round in which the store
// and the machine were there, as in Silent.
func Starts(t *testing.T, addrs []string, ttl time.Duration, rounds int, open func(through []string) driver.Backend) {
	t.Helper()
	c := contend(t, addrs, 0, ttl, open)
	c.control(past(open(addrs)))
	for _, op := range []intercept.Op{intercept.Join, intercept.Observe, intercept.Acquire} {
		var all []float64 // in TTLs
		for attempt := 0; len(all) < rounds && attempt < 3*rounds; attempt++ {
			c.note(func() { c.away, c.answer = 0, time.Now() })
			took := c.start(op, fmt.Sprint(op, attempt), open).Seconds() / ttl.Seconds()
			c.mu.Lock()
			away := c.awayNow()
			c.mu.Unlock()
			if away > 0 {
				t.Logf("%s: the store or the machine was away for %v: %.2f TTLs", op, away, took)
				continue
			}
			if all = append(all, took); took > 2 {
				t.Errorf("%s without an answer: served after %.2f TTLs of %v, want 2 at most", op, took, ttl)
			}
		}
		t.Logf("%s without an answer: served after TTLs of %v: %.2f", op, ttl, all)
		if len(all) == 0 {
			t.Skip("in no round the machine was quiet enough to judge")
		}
	}
}

// start is one round of Starts. It returns how long after its start the process serves.
func (c *contenders) start(op intercept.Op, shard string, open func(through []string) driver.Backend) time.Duration {
	c.t.Helper()
	h, through := c.host()
	b := open(through)
	before := h.sent()
	for range 20 {
		if _, err := b.ReadLog(c.t.Context(), "other", 0, 0); err != nil {
			c.t.Fatal(err)
		}
	}
	used := h.mostSince(before)
	var first sync.Once
	around := func(ctx context.Context, call *intercept.Call, proceed func(context.Context) error) error {
		if call.Op == op {
			first.Do(func() { c.silence(h.ways[used]) })
		}
		return proceed(ctx)
	}
	e, err := core.NewElector(intercept.Wrap(b, around), &core.Options{Logger: slog.New(slog.DiscardHandler), TTL: c.ttl, Node: shard})
	if err != nil {
		c.t.Fatal(err)
	}
	serves := make(chan time.Time, 1)
	err = e.Contend(func(ctx context.Context, _ *core.Lease) error {
		serves <- time.Now()
		<-ctx.Done()
		return nil
	}, shard)
	if err != nil {
		c.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(c.t.Context())
	done := make(chan error, 1)
	began := time.Now()
	go func() { done <- e.Run(ctx) }()
	var at time.Time
	select {
	case at = <-serves:
	case <-time.After(3 * patience):
		c.t.Errorf("%s without an answer: nobody serves after %v", op, 3*patience)
		at = time.Now()
	}
	stop()
	if err := <-done; err != nil {
		c.t.Errorf("%s without an answer: Run ended with %v", op, err)
	}
	return at.Sub(began)
}

// takeover cuts the holder off, with the server that another member uses or alone. It
// returns after how many TTLs another host serves, and whether that can be judged.
func (c *contenders) takeover(withServer bool) (took float64, judged bool) {
	c.t.Helper()
	holder := c.settled()
	server := c.used((holder + 1) % members)
	ways := slices.Clone(c.hosts[holder].ways)
	if withServer {
		ways = append(ways, c.to(server)...)
	}
	c.pass(rand.N(c.ttl / 3)) // at any point between two heartbeats
	began := time.Now()
	heal := c.silence(ways...)
	defer heal()
	took = c.until(fmt.Sprintf("a takeover from n%d, server %d", holder, server), func() bool {
		return c.serves >= 0 && c.serves != holder
	}).Sub(began).Seconds() / c.ttl.Seconds()
	c.mu.Lock()
	defer c.mu.Unlock()
	if away := c.awayNow(); away > 0 {
		c.t.Logf("the store or the machine was away for %v: %.2f TTLs", away, took)
		return took, false
	}
	return took, true
}

// LeaderStops stops the server that leads the store for a time, once in each round.
// The shard may be without a handler for two TTLs and as long as the store, of which
// read reads without that server and by other means, does not answer. No member that
// lives may be evicted.
func LeaderStops(
	t *testing.T, cluster *servers.Cluster, ttl, stop time.Duration, rounds int, leader func() int,
	read func(context.Context) error, open func(through []string) driver.Backend,
) {
	t.Helper()
	c := contend(t, cluster.Addrs(), members, ttl, open)
	for round := range rounds {
		c.settled()
		server := cluster.Members()[leader()]
		if round == 0 {
			c.control(read)
		}
		if err := server.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		c.pass(stop)
		if err := server.Cont(); err != nil {
			t.Fatal(err)
		}
		c.until("a leader", func() bool { return c.serves >= 0 })
		c.mu.Lock()
		longest, away, lapsed, evicted := c.longest, c.awayNow(), c.lapsed, c.evicted
		c.mu.Unlock()
		t.Logf("round %d: without an owner for %v, the store did not answer for %v, lapsed %q, evicted %q",
			round, longest.Round(time.Millisecond), away.Round(time.Millisecond), lapsed, evicted)
		if longest > 2*ttl+away || len(evicted) > 0 {
			t.Errorf("round %d: without an owner for %v, want at most %v and %v; evicted %q, want none", round, longest,
				2*ttl, away, evicted)
		}
	}
}

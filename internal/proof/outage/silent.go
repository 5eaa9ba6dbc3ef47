package outage

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/proof/ample"
	"github.com/tenure-go/tenure/internal/proof/faultproxy"
	"github.com/tenure-go/tenure/internal/proof/intercept"
	"github.com/tenure-go/tenure/internal/proof/servers"
)

// members is the number of processes that contend in the silent-server tests.
const members = 3

// Silent makes one server silent for all processes, without a reset, for two TTLs. In each round,
// Silent chooses the server that the holder uses. No member's trust may lapse, and no member may be
// evicted. A Gauge reads through a backend that reaches all servers. The open function opens a
// backend that uses the given addresses.
func Silent(t *testing.T, addrs []string, ttl time.Duration, rounds int, open func(through []string) driver.Backend) {
	t.Helper()
	c := contend(t, addrs, members, ttl, open)
	machine := ample.Beside(t, ttl/20, reads(t, open(addrs)))
	for round := range rounds {
		server := c.used(c.settled())
		heal := c.silence(c.to(server)...)
		c.pass(2 * ttl)
		heal()
		c.keeps(machine, fmt.Sprintf("round %d, server %d silent for %v", round, server, 2*ttl))
	}
	t.Logf("%d rounds at a TTL of %v", rounds, ttl)
}

func (c *contenders) to(server int) []*faultproxy.Proxy {
	var ways []*faultproxy.Proxy
	for _, h := range c.hosts {
		ways = append(ways, h.ways[server])
	}
	return ways
}

// EachTTL runs a test with a TTL of 3 seconds, for 3 rounds, or for one round with -short. If
// rounds is above 0, EachTTL runs that many rounds for each of three TTLs, in parallel.
func EachTTL(t *testing.T, rounds int, test func(t *testing.T, ttl time.Duration, rounds int)) {
	ttls := []time.Duration{time.Second, 3 * time.Second, 10 * time.Second}
	if rounds == 0 {
		ttls, rounds = ttls[1:2], 3
		if testing.Short() {
			rounds = 1
			t.Log("short: 1 of 3 rounds")
		}
	}
	for _, ttl := range ttls {
		t.Run(ttl.String(), func(t *testing.T) {
			t.Parallel()
			test(t, ttl, rounds)
		})
	}
}

// HolderDies permanently cuts off the holder, and the server that another member uses. The
// connections are not reset. A takeover may take one and a half TTLs. The Gauge is the same as in
// Silent.
func HolderDies(
	t *testing.T, addrs []string, ttl time.Duration, rounds int, open func(through []string) driver.Backend,
) {
	t.Helper()
	c := contend(t, addrs, members, ttl, open)
	machine := ample.Beside(t, ttl/20, reads(t, open(addrs)))
	for round := range rounds {
		took := c.takeover()
		t.Logf("round %d: %.2f TTLs of %v", round, took.Seconds()/ttl.Seconds(), ttl)
		machine.AtMost("a takeover when a server dies with the holder", took, ttl*3/2)
	}
}

// Starts starts a process and then makes its server silent, without a reset. The silence begins
// just before a call that the process needs for its first lease: the join, the full read, or the
// claim. The process must serve within two TTLs. The Gauge is the same as in Silent.
func Starts(t *testing.T, addrs []string, ttl time.Duration, rounds int, open func(through []string) driver.Backend) {
	t.Helper()
	c := contend(t, addrs, 0, ttl, open)
	machine := ample.Beside(t, ttl/20, reads(t, open(addrs)))
	for _, op := range []intercept.Op{intercept.Join, intercept.Observe, intercept.Acquire} {
		for round := range rounds {
			took := c.start(op, fmt.Sprint(op, round), open)
			t.Logf("%s without an answer: served after %.2f TTLs of %v", op, took.Seconds()/ttl.Seconds(), ttl)
			machine.AtMost(string(op)+" without an answer: the first lease", took, 2*ttl)
		}
	}
}

// start is one round of Starts. The result is the time from the process's start until it serves.
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
	case <-time.After(ample.Time):
		c.t.Errorf("%s without an answer: nobody serves after %v", op, ample.Time)
		at = time.Now()
	}
	stop()
	if err := <-done; err != nil {
		c.t.Errorf("%s without an answer: Run ended with %v", op, err)
	}
	return at.Sub(began)
}

// takeover cuts off the holder and the server that another member uses. The result is the time
// until another host serves.
func (c *contenders) takeover() time.Duration {
	c.t.Helper()
	holder := c.settled()
	server := c.used((holder + 1) % members)
	c.pass(rand.N(c.ttl / 3)) // at any point between two heartbeats
	began := time.Now()
	defer c.silence(append(c.to(server), c.hosts[holder].ways...)...)()
	return c.until(fmt.Sprintf("a takeover from n%d, server %d", holder, server), func() bool {
		return c.serves >= 0 && c.serves != holder
	}).Sub(began)
}

// LeaderStops stops the store's leader for a while, once in each round. The shard may be without a
// handler for two TTLs plus the time during which the store does not answer. That time is measured
// with the read function, which must not use the stopped server. No live member may be evicted.
func LeaderStops(
	t *testing.T, cluster *servers.Cluster, ttl, stop time.Duration, rounds int, leader func() int,
	read func(context.Context) error, open func(through []string) driver.Backend,
) {
	t.Helper()
	c := contend(t, cluster.Addrs(), members, ttl, open)
	machine := ample.Beside(t, 50*time.Millisecond, nil)
	var unanswered func() time.Duration
	for round := range rounds {
		c.settled()
		server := cluster.Members()[leader()]
		if round == 0 {
			unanswered = c.answers(read)
		}
		unanswered()
		if err := server.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		c.pass(stop)
		if err := server.Cont(); err != nil {
			t.Fatal(err)
		}
		c.until("a leader", func() bool { return c.serves >= 0 })
		c.mu.Lock()
		longest, lapsed, evicted, lost := c.longest, c.lapsed, c.evicted, c.lost
		c.mu.Unlock()
		away := unanswered()
		t.Logf("round %d: without an owner for %v, the store did not answer for %v, lapsed %q, evicted %q",
			round, longest.Round(time.Millisecond), away.Round(time.Millisecond), lapsed, evicted)
		machine.AtMost(fmt.Sprintf("round %d: the time without an owner", round), longest, 2*ttl+away)
		if len(evicted) > 0 {
			machine.AtMost(fmt.Sprintf("round %d: evicted %q: the time since trust lapsed or that", round, evicted), time.Since(lost), 0)
		}
	}
}

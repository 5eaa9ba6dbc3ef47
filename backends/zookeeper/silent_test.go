package zookeeper

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/proof/ample"
	"github.com/tenure-go/tenure/internal/proof/faultproxy"
	"github.com/tenure-go/tenure/internal/proof/outage"
	"github.com/tenure-go/tenure/internal/proof/servers"
	"github.com/tenure-go/tenure/internal/proof/share"
	"github.com/tenure-go/tenure/internal/proof/sqlfault"
)

var (
	silentRounds = flag.Int("silent.rounds", 2, "faults in each test of a silent server")
	silentTTLs   = flag.String("silent.ttls", "3s", "for members of these TTLs, separated by commas")
)

func rounds(t *testing.T) int {
	t.Helper()
	return share.Of(t, "silent.rounds", *silentRounds, 1)
}

// cast runs three members on an ensemble.
func cast(t *testing.T, ttl time.Duration, members []*servers.Server) *outage.Cast {
	t.Helper()
	return outage.NewCast(t, 3, ttl, addrs(members), func(through []string) driver.Backend {
		b, err := Open(bounded(t, ample.Time), through, t.Name(), &Options{Create: true})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { b.Close() })
		return b
	})
}

// uses returns the server that a member uses.
func uses(c *outage.Cast, member int) int { return c.Backend(member).(*Backend).store.routes.Current() }

// gauge sends heartbeats without the proxies.
func gauge(t *testing.T, ttl time.Duration, members []*servers.Server) *ample.Gauge {
	t.Helper()
	b, err := Open(bounded(t, ample.Time), addrs(members), t.Name()+"/control", &Options{Create: true})
	if err != nil {
		t.Fatal(err)
	}
	s, ctx := sqlfault.Join(t, b, "control"), context.WithoutCancel(t.Context())
	t.Cleanup(func() { b.Close() })
	return ample.Beside(t, ttl/6, func() { _ = s.Beat(ctx) })
}

// eachTTL runs a test for each TTL, with its own ensemble.
func eachTTL(t *testing.T, config []string, do func(t *testing.T, ttl time.Duration, members []*servers.Server)) {
	for text := range strings.SplitSeq(*silentTTLs, ",") {
		ttl, err := time.ParseDuration(text)
		if err != nil {
			t.Fatal(err)
		}
		t.Run(text, func(t *testing.T) {
			do(t, ttl, servers.NewCluster(t, servers.ZooKeeper, 3, &servers.Options{Config: config}).Members())
		})
	}
}

// TestSilentServer: the server that an owner uses falls silent without a reset. No trust lapses,
// and no member is evicted.
func TestSilentServer(t *testing.T) {
	eachTTL(t, nil, func(t *testing.T, ttl time.Duration, members []*servers.Server) {
		c, g := cast(t, ttl, members), gauge(t, ttl, members)
		for round := range rounds(t) {
			owner := c.Settle()
			silent := uses(c, owner)
			c.Silence(silent)
			time.Sleep(2 * ttl)
			events, gap := c.Seen()
			most := ttl / 2
			if len(events) > 0 {
				most = -1
			}
			g.AtMost(fmt.Sprintf("round %d: being without an owner, with %q,", round, events), gap, most)
			if now := uses(c, owner); now == silent {
				t.Errorf("round %d: the owner still uses the server", round)
			}
			t.Logf("round %d: %d events, %v without an owner", round, len(events), gap)
			c.Heal()
		}
		c.Settle()
	})
}

// TestHolderAndServerDie: the owner's machine dies, together with the server that a successor uses.
func TestHolderAndServerDie(t *testing.T) {
	eachTTL(t, nil, func(t *testing.T, ttl time.Duration, members []*servers.Server) {
		c, g := cast(t, ttl, members), gauge(t, ttl, members)
		limit := ttl * 3 / 2
		if ttl < 3*time.Second {
			limit = 2 * ttl
		}
		var took []time.Duration
		for round := range rounds(t) {
			owner := c.Settle()
			start := time.Now()
			c.CutOff(owner)
			c.Silence(uses(c, (owner+1+round%2)%3))
			one := c.Takeover(owner, start)
			events, _ := c.Seen()
			g.AtMost(fmt.Sprintf("round %d: the takeover, with %q,", round, events), one, limit)
			took = append(took, one)
			c.Heal()
		}
		c.Settle()
		slices.Sort(took)
		t.Logf("takeover in TTLs: median %.2f, longest %.2f of %d", took[len(took)/2].Seconds()/ttl.Seconds(),
			took[len(took)-1].Seconds()/ttl.Seconds(), len(took))
	})
}

// TestSilentServerIsLeft: after one call has given up a silent server, no other call waits for that
// server. The links for calls are replaced without a heartbeat. One server acts as both servers,
// because it answers on both addresses.
func TestSilentServerIsLeft(t *testing.T) {
	t.Parallel()
	server := pool.Get(t, servers.ZooKeeper, patient)
	var ways []*faultproxy.Proxy
	var through []string
	for range 2 {
		p, err := faultproxy.New(server.Addr(), nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = p.Close() }) // a cut connection may fail to close
		ways, through = append(ways, p), append(through, p.Addr())
	}
	b, err := Open(bounded(t, ample.Time), through, t.Name(), &Options{Create: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	s := b.store
	get := func(ctx context.Context) error {
		_, err := s.Get(ctx, b.identity)
		return err
	}
	try(t, "a read", 5*time.Second, get)
	used := s.routes.Current()
	if err := ways[used].Set(faultproxy.BlackHole()); err != nil {
		t.Fatal(err)
	}
	if err := get(bounded(t, 2*minPatience)); err == nil {
		t.Fatal("a read from a silent server was answered")
	}
	ample.Wait(t, "other calls are still led to the server that left a call without an answer",
		func() bool { return s.routes.Current() != used })
}

// TestStartAtSilentServer: a process that first tries a silent server soon serves.
func TestStartAtSilentServer(t *testing.T) {
	members := servers.NewCluster(t, servers.ZooKeeper, 3, nil).Members()
	rounds := share.Of(t, "silent.rounds", max(3, *silentRounds), 1)
	for _, ttl := range []time.Duration{500 * time.Millisecond, time.Second} {
		outage.Starts(t, addrs(members), ttl, rounds, func(through []string) driver.Backend {
			b, err := Open(bounded(t, ample.Time), through, t.Name(), &Options{Create: true})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { b.Close() })
			return b
		})
	}
}

// TestLeaderStopped stops the ensemble's leader until another leader is elected. All members stop
// until then. Afterwards, the former owners continue, and no member is evicted.
func TestLeaderStopped(t *testing.T) {
	const ttl, stopped = 2 * time.Second, 10 * time.Second
	members := servers.NewCluster(t, servers.ZooKeeper, 3,
		&servers.Options{Config: []string{"tickTime = 200"}}).Members()
	c, g := cast(t, ttl, members), ample.Beside(t, 50*time.Millisecond, nil)
	for round := range rounds(t) {
		c.Settle()
		leader := leaderOf(t, members)
		start := time.Now()
		if err := leader.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		others := slices.DeleteFunc(slices.Clone(members), func(s *servers.Server) bool { return s == leader })
		leaderOf(t, others)
		election := time.Since(start)
		time.Sleep(time.Until(start.Add(stopped)))
		events, gap := c.Seen()
		if err := leader.Cont(); err != nil {
			t.Fatal(err)
		}
		g.AtMost(fmt.Sprintf("round %d: being without an owner, with %q,", round, events), gap, election+2*ttl)
		for _, e := range events {
			if strings.Contains(e, "evicted") || strings.Contains(e, "lost") {
				t.Errorf("round %d: %q", round, events)
			}
		}
		t.Logf("round %d: %v without an owner, the election took %v; %d events", round, gap, election, len(events))
	}
	c.Settle()
}

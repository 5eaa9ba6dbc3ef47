package zookeeper

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/proof/ample"
	"github.com/tenure-go/tenure/internal/proof/faultproxy"
	"github.com/tenure-go/tenure/internal/proof/outage"
	"github.com/tenure-go/tenure/internal/proof/servers"
	"github.com/tenure-go/tenure/internal/proof/share"
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

// uses is the server that a member uses.
func uses(c *outage.Cast, member int) int { return c.Backend(member).(*Backend).store.routes.Current() }

// control is a session past all proxies, which measures how long the ensemble, or
// the machine under the test, left it without an answer.
type control struct {
	mu      sync.Mutex
	last    time.Time
	longest time.Duration
}

func newControl(t *testing.T, members []*servers.Server) *control {
	t.Helper()
	b, err := Open(bounded(t, ample.Time), addrs(members), t.Name()+"/control", &Options{Create: true})
	if err != nil {
		t.Fatal(err)
	}
	s := join(t, b, "control")
	c := &control{last: time.Now()}
	ctx, stop := context.WithCancel(t.Context())
	var beating sync.WaitGroup
	beating.Go(func() {
		for ctx.Err() == nil {
			if s.Beat(ctx) == nil {
				c.take(false)
			}
			select {
			case <-time.After(20 * time.Millisecond):
			case <-ctx.Done():
			}
		}
	})
	t.Cleanup(func() {
		stop()
		beating.Wait()
		b.Close()
	})
	return c
}

// take returns the longest time without an answer, and begins anew if asked to.
func (c *control) take(anew bool) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	longest := max(c.longest, now.Sub(c.last))
	if c.longest = longest; anew {
		c.longest, c.last = 0, now
	} else {
		c.last = now
	}
	return longest
}

// gauge judges what the members took. The control excuses what the ensemble took.
func gauge(t *testing.T) *ample.Gauge { return ample.Beside(t, 50*time.Millisecond, nil) }

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

// TestSilentServer: the server that an owner uses says nothing more, and resets
// nothing. Nobody's trust lapses, and nobody is evicted.
func TestSilentServer(t *testing.T) {
	eachTTL(t, nil, func(t *testing.T, ttl time.Duration, members []*servers.Server) {
		c, control, g := cast(t, ttl, members), newControl(t, members), gauge(t)
		for round, stalls, rounds := 0, 0, rounds(t); round < rounds; round++ {
			owner := c.Settle()
			silent := uses(c, owner)
			control.take(true)
			c.Silence(silent)
			time.Sleep(2 * ttl)
			events, gap := c.Seen()
			if stall := control.take(true); stall > ttl/6 && stalls < 10*rounds {
				t.Logf("round %d does not count: the ensemble or this machine stood still for %v: %q", round, stall,
					events)
				stalls++
				round--
				c.Heal()
				continue
			}
			if len(events) > 0 {
				t.Errorf("round %d: %q, and %v without an owner", round, events, gap)
			}
			g.AtMost(fmt.Sprintf("round %d: being without an owner", round), gap, ttl/2)
			if now := uses(c, owner); now == silent {
				t.Errorf("round %d: the owner still uses the server", round)
			}
			t.Logf("round %d: %d events, %v without an owner", round, len(events), gap)
			c.Heal()
		}
		c.Settle()
	})
}

// TestHolderAndServerDie: the owner's machine dies, and with it the server that a
// successor uses.
func TestHolderAndServerDie(t *testing.T) {
	eachTTL(t, nil, func(t *testing.T, ttl time.Duration, members []*servers.Server) {
		c, g := cast(t, ttl, members), gauge(t)
		limit := ttl * 3 / 2
		if ttl < 3*time.Second {
			limit = 2 * ttl
		}
		var took []time.Duration
		control := newControl(t, members)
		for round, stalls, rounds := 0, 0, rounds(t); round < rounds; round++ {
			owner := c.Settle()
			control.take(true)
			start := time.Now()
			c.CutOff(owner)
			c.Silence(uses(c, (owner+1+round%2)%3))
			one := c.Takeover(owner, start)
			if stall := control.take(true); stall > ttl/6 && stalls < 10*rounds {
				t.Logf("round %d does not count: the ensemble or this machine stood still for %v; it took %v", round,
					stall, one)
				stalls++
				round--
				c.Heal()
				continue
			}
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

// TestSilentServerIsLeft: once one call has given a silent server up, no other call waits for
// that server: the calls' links follow each other without a heartbeat. One server stands for
// two, since it answers on both addresses.
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

// TestStartAtSilentServer: a process that starts at a server that is silent serves soon.
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

// TestLeaderStopped stops the ensemble's leader for long enough to elect another. All
// stop until then; afterwards the former owners go on, and nobody is evicted.
func TestLeaderStopped(t *testing.T) {
	const ttl, stopped = 2 * time.Second, 10 * time.Second
	members := servers.NewCluster(t, servers.ZooKeeper, 3,
		&servers.Options{Config: []string{"tickTime = 200"}}).Members()
	c, g := cast(t, ttl, members), gauge(t)
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

package outage

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	mathrand "math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/follower"
	"github.com/tenure-go/tenure/internal/proof/ample"
	"github.com/tenure-go/tenure/internal/proof/faultproxy"
	"github.com/tenure-go/tenure/internal/proof/system"
)

// Lost is a store that loses connections silently, as if a firewall had forgotten them. Open
// connections stay open but carry no more data. New connections work.
type Lost struct {
	Addr string // address of the server
	// Open opens a namespace through an address, and may create the namespace.
	Open func(t *testing.T, addr, namespace string) driver.Backend
	// Conns is how many connections an idle member has.
	Conns int
	// Notice limits how late a process notices a change if it has lost the connections that report
	// changes.
	Notice time.Duration
}

// lostTTL returns the TTL of the members: two seconds, or the value of the flag -system.ttl.
func lostTTL() time.Duration { return system.TTL(2 * time.Second) }

// lostSlack is the time that a busy machine may add.
const lostSlack = 4 * time.Second

// LostConnection silently breaks open connections of idle processes. The test breaks all
// connections, then each connection alone, and then all connections except one.
//
//   - died: a standby loses connections, and then the owner dies. The standby must serve within one
//     and a half TTLs.
//   - busy: like died, but the standby has made many concurrent calls.
//   - handedOver: a standby loses connections, and then the owner hands its shard over. The standby
//     must serve the shard within Notice, or within the limit of the case died if that is longer.
//   - left: like handedOver, but the owner leaves.
//   - kept: the owner loses connections, and must keep its lease.
//   - slowed: like kept, but the store was slow before, so that the owner's heartbeats overlapped.
//     Only a few of the connections that these heartbeats opened may stay open.
//   - followed: a follower loses all connections after many concurrent calls. Then an entry is
//     written. The follower must have the entry within Notice plus the CallTimeout of its Options.
//   - fresh: like followed, while Fresh is called. Fresh must not confirm a state that is older
//     than two pulses.
//
// With -short, LostConnection runs the case died three times and every other case once, and chooses
// the lost connections at random.
func (l Lost) LostConnection(t *testing.T) {
	each, most := l.Conns+1, 2*l.Conns+1
	atOnce := make(chan struct{}, 4) // with more parallel tests, connecting would take too long
	var all sync.WaitGroup
	for _, how := range []struct {
		name  string
		which int
		test  func(t *testing.T, which int)
	}{
		{"slowed", 1, func(t *testing.T, which int) { l.kept(t, which, true) }}, // it takes longest
		{"died", most, l.died},
		{"busy", 1, l.busy},
		{"handedOver", most, l.handedOver},
		{"left", 1, l.left},
		{"kept", each, func(t *testing.T, which int) { l.kept(t, which, false) }},
		{"followed", each, func(t *testing.T, which int) { l.followed(t, which, false) }},
		{"fresh", 1, func(t *testing.T, which int) { l.followed(t, which, true) }},
	} {
		cases := l.cases(how.which, how.name == "died")
		t.Logf("%s: %d of %d cases", how.name, len(cases), how.which)
		for _, which := range cases {
			name := how.name + "All"
			switch {
			case which > l.Conns:
				name += "But" + strconv.Itoa(which-l.Conns)
			case which > 0:
				name = how.name + strconv.Itoa(which)
			}
			atOnce <- struct{}{}
			all.Go(func() {
				defer func() { <-atOnce }()
				t.Run(name, func(t *testing.T) { how.test(t, which) })
			})
		}
	}
	all.Wait()
}

// cases returns all choices for lose that are below n. With -short, it returns one choice of each
// kind, with a random connection, or a single choice of a random kind.
func (l Lost) cases(n int, kinds bool) (all []int) {
	if !testing.Short() || n == 1 {
		for which := range n {
			all = append(all, which)
		}
		return all
	}
	all = []int{0, 1 + mathrand.N(l.Conns)}
	if n > l.Conns+1 {
		all = append(all, 1+l.Conns+mathrand.N(l.Conns))
	}
	if i := mathrand.N(len(all)); !kinds {
		all = all[i : i+1]
	}
	return all
}

// pair runs two members until one owns the shard and both are idle.
func (l Lost) pair(t *testing.T, ttl time.Duration) (c *contenders, owner, standby *host) {
	t.Helper()
	namespace := "lost/" + rand.Text()
	c = contend(t, []string{l.Addr}, 2, ttl, func(through []string) driver.Backend {
		return l.Open(t, through[0], namespace)
	})
	holder := c.settled()
	c.pass(c.ttl)
	return c, c.hosts[holder], c.hosts[1-holder]
}

// lose silently breaks all open connections, a single connection, or all connections except one.
func (l Lost) lose(t *testing.T, p *faultproxy.Proxy, which int) {
	t.Helper()
	conns := p.Conns()
	open := len(conns)
	if which > 0 {
		i := (which - 1) % l.Conns
		if i >= open {
			t.Skipf("there are only %d connections", open)
		}
		if which <= l.Conns {
			conns = conns[i:][:1]
		} else {
			conns = slices.Delete(conns, i, i+1)
		}
	}
	t.Logf("lost %d of %d", len(conns), open)
	for _, c := range conns {
		if err := c.Set(faultproxy.BlackHole()); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { _ = p.Set(faultproxy.Faults{}) }) // to let them be closed
}

// serving waits until a host serves the shard, and returns the time since start.
func (c *contenders) serving(h *host, start time.Time) time.Duration {
	c.t.Helper()
	at := slices.Index(c.hosts, h)
	took := c.until("a takeover", func() bool { return c.serves == at }).Sub(start)
	c.t.Logf("after %v, %.2f TTLs", took.Round(time.Millisecond), took.Seconds()/c.ttl.Seconds())
	return took
}

// beside returns a Gauge that sends heartbeats in another namespace. Reads would not be enough,
// because an owner needs writes, and a store with a busy disk still answers reads.
func (l Lost) beside(t *testing.T) *ample.Gauge {
	t.Helper()
	b := l.Open(t, l.Addr, "lost/"+rand.Text())
	s, err := b.Join(t.Context(), driver.Member{Session: core.SessionID(rand.Text()), Node: "beside", TTL: lostTTL()})
	if err != nil {
		t.Fatal(err)
	}
	return ample.Beside(t, lostTTL()/20, func() { _ = s.Beat(t.Context()) })
}

func (l Lost) takeover() time.Duration { return lostTTL()*3/2 + lostSlack }

func (l Lost) notice() time.Duration { return max(l.Notice+lostSlack, l.takeover()) }

func (l Lost) died(t *testing.T, which int) {
	machine := l.beside(t)
	c, owner, standby := l.pair(t, lostTTL())
	l.lose(t, standby.ways[0], which)
	start := time.Now()
	defer c.silence(owner.ways...)()
	machine.AtMost("a takeover", c.serving(standby, start), l.takeover())
}

func (l Lost) busy(t *testing.T, _ int) {
	machine := l.beside(t)
	c, owner, standby := l.pair(t, lostTTL())
	burst(t, standby.b)
	c.pass(c.ttl)
	l.lose(t, standby.ways[0], 0)
	start := time.Now()
	defer c.silence(owner.ways...)()
	machine.AtMost("a takeover", c.serving(standby, start), l.takeover())
}

// burst makes many concurrent calls, which leave connections open for later calls.
func burst(t *testing.T, b driver.Backend) {
	t.Helper()
	var all sync.WaitGroup
	for range 32 {
		all.Go(func() {
			if _, err := b.ReadLog(t.Context(), contended, 0, 1); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
}

func (l Lost) handedOver(t *testing.T, which int) {
	machine := l.beside(t)
	c, owner, standby := l.pair(t, lostTTL())
	l.lose(t, standby.ways[0], which)
	start := time.Now()
	if err := owner.HandOver(t.Context(), standby.View().Session, contended); err != nil {
		t.Fatal(err)
	}
	machine.AtMost("a takeover", c.serving(standby, start), l.notice())
}

func (l Lost) left(t *testing.T, which int) {
	machine := l.beside(t)
	c, owner, standby := l.pair(t, lostTTL())
	l.lose(t, standby.ways[0], which)
	start := time.Now()
	owner.stop()
	machine.AtMost("a takeover", c.serving(standby, start), l.notice())
}

// The test waits for three TTLs, in which an owner makes all of its regular calls.
func (l Lost) kept(t *testing.T, which int, slow bool) {
	ttl := 2 * lostTTL() // on a busy machine, connecting may take all the time that two lost heartbeats leave
	machine := l.beside(t)
	c, owner, _ := l.pair(t, ttl)
	if slow {
		owner = l.slow(t, c, owner, machine)
	}
	l.lose(t, owner.ways[0], which)
	c.pass(3 * c.ttl)
	c.keeps(machine, "the owner lost connections")
}

// The answers to a host are delayed three times. Each time, two more heartbeats become due before
// the first heartbeat is answered, and each heartbeat uses a separate connection. Most of these
// connections must be closed soon afterwards, not only after long disuse. The result is the owner,
// which is h if the machine is fast enough.
func (l Lost) slow(t *testing.T, c *contenders, h *host, machine *ample.Gauge) *host {
	t.Helper()
	most := 0
	for range 3 {
		for _, spell := range []struct{ late, length time.Duration }{{c.ttl * 5 / 12, c.ttl * 3 / 4}, {0, c.ttl / 2}} {
			if err := h.ways[0].Set(faultproxy.Faults{Replies: faultproxy.Flow{Latency: spell.late}}); err != nil {
				t.Fatal(err)
			}
			c.pass(spell.length)
			most = max(most, len(h.ways[0].Conns()))
		}
	}
	t.Logf("up to %d connections", most)
	began := time.Now()
	ample.Wait(t, fmt.Sprintf("more than %d of them stay open, an idle member has %d", l.Conns+3, l.Conns), func() bool {
		return len(h.ways[0].Conns()) <= l.Conns+3
	})
	machine.AtMost("closing most of them", time.Since(began), 11*c.ttl)
	return c.hosts[c.settled()]
}

func (l Lost) followed(t *testing.T, which int, asked bool) {
	const pulse, call = 1500 * time.Millisecond, 10 * time.Second // defaults of follower.Options
	machine := l.beside(t)
	namespace := "lost/" + rand.Text()
	c := contend(t, []string{l.Addr}, 1, lostTTL(), func(through []string) driver.Backend {
		return l.Open(t, through[0], namespace)
	})
	c.settled()
	h, through := c.host()
	b := l.Open(t, through[0], namespace)
	tailer := tail(t, b)
	write := func() core.Seq {
		c.mu.Lock()
		lease := c.lease
		c.mu.Unlock()
		seq, err := lease.Append(t.Context(), []byte("entry"))
		if err != nil {
			t.Fatal(err)
		}
		return seq
	}
	comes := func(seq core.Seq) {
		ctx, cancel := context.WithTimeout(t.Context(), ample.Time)
		defer cancel()
		if err := tailer.WaitFor(ctx, contended, seq); err != nil {
			t.Fatal(err)
		}
	}
	comes(write())
	if which == 0 {
		burst(t, b)
	}
	c.pass(c.ttl)

	l.lose(t, h.ways[0], which)
	seq, start := write(), time.Now()
	if asked {
		c.pass(2 * pulse)
		ample.Wait(t, "the entry is not applied", func() bool {
			fresh := tailer.Fresh(contended, 0) == nil
			applied := tailer.Position("f", contended).Seq >= seq
			if fresh && !applied {
				t.Fatalf("fresh %v after an entry that was not applied", time.Since(start))
			}
			return applied
		})
	}
	comes(seq)
	took := time.Since(start)
	t.Logf("after %v", took.Round(time.Millisecond))
	machine.AtMost("the entry", took, l.Notice+call+lostSlack)
}

// tail follows the shard until the end of the test.
func tail(t *testing.T, b driver.Backend) *follower.Tailer {
	t.Helper()
	tailer, err := follower.NewTailer(b, &follower.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	apply := func(context.Context, follower.Batch) error { return nil }
	if err := tailer.Follow("f", follower.Memory(apply, nil), contended); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- tailer.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return tailer
}

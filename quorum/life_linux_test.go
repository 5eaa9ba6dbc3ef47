package quorum

import (
	"cmp"
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/tenure-go/tenure/internal/proof/ample"
)

// TestFirstStart: the members of a new cluster start in any order, and a majority suffices.
func TestFirstStart(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	first := func(name string) *proc {
		s := c.setting(name)
		s.Create = true
		return c.run(s)
	}
	began := time.Now()
	last := first("c")
	ample.Wait(t, "c does not listen", func() bool {
		conn, err := net.Dial("tcp", c.of.Members[2].Peer)
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	})
	if last.line("started") != "" {
		t.Error("one of three members started alone")
	}
	a := first("a")
	last.await("started")
	a.await("started")
	_, since, _ := c.owner(0)
	t.Logf("the first lease came %v after the first start", since.Sub(began))
	c.progress()
	b := first("b")
	b.await("started")
	a.end(syscall.SIGKILL) // b counts towards the majority
	c.progress()
	c.check()
}

// TestRestart: members restart one by one, all in an orderly way, and all after SIGKILL.
func TestRestart(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	began := time.Now()
	procs := c.first(false)
	_, since, _ := c.owner(0)
	t.Logf("the first lease came %v after the start of three", since.Sub(began))
	c.progress()
	procs["b"].end(syscall.SIGTERM)
	c.progress()
	procs["b"] = c.start("b")
	procs["b"].await("started")
	for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		c.progress()
		for _, p := range procs {
			if s == syscall.SIGKILL {
				_ = p.cmd.Process.Signal(s)
			}
		}
		for _, p := range procs {
			p.end(s)
		}
		for name := range procs {
			procs[name] = c.start(name)
		}
		for _, p := range procs {
			p.await("started")
		}
	}
	c.progress()
	c.check()
}

// takeovers is the number of rounds of TestTakeover. If it is not set, there is one round, and no time
// is compared.
const takeovers = "TENURE_QUORUM_TAKEOVERS"

// TestTakeover: SIGKILL ends the process that leads both the quorum and the shard.
func TestTakeover(t *testing.T) { // alone, because it measures times
	const ttl = 2 * time.Second
	c := newCluster(t)
	c.ttl = ttl
	rounds, err := strconv.Atoi(cmp.Or(os.Getenv(takeovers), "1"))
	if err != nil || rounds < 1 {
		t.Fatalf("%s is %q: use a number of rounds", takeovers, os.Getenv(takeovers))
	}
	procs := c.first(false)
	gauge := ample.Beside(t, 50*time.Millisecond, c.sync)
	var took []time.Duration
	for range rounds {
		leader := c.leads()
		c.progress()
		killed := time.Now()
		leader.end(syscall.SIGKILL)
		var since time.Time
		ample.Wait(t, "no other process got the lease", func() bool {
			var p *proc
			p, since, _ = c.owner(0)
			return p != leader
		})
		if d := since.Sub(killed); d > 0 { // otherwise, the lease moved before the kill
			took = append(took, d)
		}
		procs[leader.name] = c.start(leader.name)
		procs[leader.name].await("started")
	}
	c.progress()
	c.check()
	if slices.Sort(took); len(took) > 0 {
		median, most := took[len(took)/2], took[len(took)-1]
		t.Logf("%d takeovers with a TTL of %v: median %v, maximum %v", len(took), ttl, median, most)
		if os.Getenv(takeovers) != "" {
			gauge.AtMost("the median takeover", median, ttl+1500*time.Millisecond)
			gauge.AtMost("the longest takeover", most, ttl+3*time.Second)
		}
	}
}

// TestStoppedLeader: the process that leads both the quorum and the shard is stopped past its TTL,
// and continues later, twice.
func TestStoppedLeader(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	procs := c.first(false)
	for range 2 {
		stops := c.leads()
		c.progress()
		if err := stops.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		ample.Wait(t, "no other process got the lease", func() bool {
			p, _, _ := c.owner(0)
			return p != stops
		})
		c.progress()
		if err := stops.cmd.Process.Signal(syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		c.progress()
	}
	c.check()
	for _, p := range procs {
		p.end(syscall.SIGTERM)
	}
}

// leads makes the shard's owner lead the quorum, and returns it.
func (c *cluster) leads() (p *proc) {
	c.Helper()
	ample.Wait(c, "the owner of the shard changes again and again", func() bool {
		p, _, _ = c.owner(0)
		c.moveLeader(p.name)
		now, _, _ := c.owner(0)
		return now == p
	})
	return p
}

// sync writes to the disk as etcd does for each entry.
func (c *cluster) sync() {
	file, err := os.Create(filepath.Join(c.root, "sync"))
	if err == nil {
		_, err = file.WriteString("x")
		err = errors.Join(err, file.Sync(), file.Close())
	}
	if err != nil {
		c.Error(err)
	}
}

// moveLeader makes the named member lead the quorum.
func (c *cluster) moveLeader(name string) {
	c.Helper()
	client := c.client()
	want := uint64(0)
	var at string
	ample.Wait(c, "the quorum's leader did not move to "+name, func() bool {
		leads := uint64(0)
		for _, m := range c.of.Members {
			ctx, cancel := context.WithTimeout(c.Context(), 5*time.Second)
			status, err := client.Status(ctx, "http://"+m.Client)
			cancel()
			if err != nil {
				return false
			}
			leads = status.Leader
			if m.Name == name {
				want = status.Header.MemberId
			}
			if status.Header.MemberId == status.Leader {
				at = "http://" + m.Client
			}
		}
		if leads == want {
			return true
		}
		client.SetEndpoints(at)
		ctx, cancel := context.WithTimeout(c.Context(), 5*time.Second)
		defer cancel()
		_, _ = client.MoveLeader(ctx, want) // the next round sees whether it moved
		return false
	})
}

// client returns a client of all members.
func (c *cluster) client() *clientv3.Client {
	c.Helper()
	client, err := clientv3.New(clientv3.Config{Endpoints: endpoints(c.of.Members), Logger: zap.NewNop()})
	if err != nil {
		c.Fatal(err)
	}
	c.Cleanup(func() { _ = client.Close() })
	return client
}

// voters returns the number of members that vote and have started.
func (c *cluster) voters() (n int) {
	c.Helper()
	ctx, cancel := context.WithTimeout(c.Context(), ample.Time)
	defer cancel()
	list, err := c.client().MemberList(ctx)
	if err != nil {
		c.Fatal(err)
	}
	for _, m := range list.Members {
		if !m.IsLearner && m.Name != "" {
			n++
		}
	}
	return n
}

// TestLostDisk: a member whose disk is lost is replaced, and its vote counts.
func TestLostDisk(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	procs := c.first(false)
	c.progress()
	procs["a"].end(syscall.SIGKILL)
	if err := os.RemoveAll(c.setting("a").Dir); err != nil {
		t.Fatal(err)
	}
	c.start("a").fails("is empty", "set Create", "call Replace")
	s := c.setting("a")
	s.Create = true // left in the configuration
	c.run(s).fails("data is lost", "call Replace")

	s.Create, s.Replace = false, true
	a := c.run(s)
	a.await("started")
	if n := c.voters(); n != 3 {
		t.Errorf("%d members vote after the replacement, want 3", n)
	}
	c.run(s).fails("another member uses")
	c.progress()
	procs["b"].end(syscall.SIGKILL) // a counts towards the majority
	c.progress()
	a.end(syscall.SIGTERM)
	c.run(s).fails("contains the data", "call Start")
	c.start("a").await("started")
	c.progress()
	c.check()
}

// TestReplaceRunning: a member that runs is not replaced.
func TestReplaceRunning(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.first(true)
	s := c.setting("a")
	s.Dir, s.Replace = filepath.Join(c.root, "other"), true
	c.run(s).fails("the member runs at", "stop it first")
	if n := c.voters(); n != 3 {
		t.Errorf("%d members vote, want 3", n)
	}
}

// TestClientOnly: a fourth process, which is no member, holds the shard while members end.
func TestClientOnly(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	procs := c.first(true)
	fourth := c.run(setting{Config: Config{Cluster: "test", Name: "fourth", Members: c.of.Members}, ClientOnly: true})
	c.owner(0)
	for name := range procs {
		c.progress()
		procs[name].end(syscall.SIGKILL)
		c.progress()
		procs[name] = c.start(name)
		procs[name].await("started")
	}
	fourth.end(syscall.SIGTERM)
	c.check()
}

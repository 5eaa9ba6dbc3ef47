//go:build unix

package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/mark"
)

// open opens the store until the test ends.
func (p *place) open() (*app, core.Backend) {
	p.t.Helper()
	a := &app{path: p.path, key: "tenure", timeout: limit}
	b, err := a.open(p.t.Context())
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { _ = b.Close() })
	return a, b
}

// join joins an idle member, until the test ends.
func (p *place) join(b core.Backend, node string, ttl time.Duration) driver.Session {
	p.t.Helper()
	s, err := b.Join(p.t.Context(), core.Member{Session: core.SessionID("of-" + node), Node: node, TTL: ttl})
	if err != nil {
		p.t.Fatal(err)
	}
	return s
}

// status returns the output of the command status, with its exit code and error.
func (p *place) status() (o statusOut, code int, errs string) {
	p.t.Helper()
	code, out, errs := p.exec("status", "-o", "json")
	if err := json.Unmarshal([]byte(out), &o); err != nil {
		p.t.Fatalf("status: %v: %s%s", err, out, errs)
	}
	return o, code, errs
}

// silent stops all members of a namespace. Their records look like running members' records, but
// status reports that no member is alive.
func (p *place) silent() {
	p.t.Helper()
	if o, code, errs := p.status(); code != exitSilent || o.Members != 0 || !strings.Contains(errs, "no member") {
		p.t.Errorf("status of an empty namespace: got %+v, %d, %q, want code %d", o, code, errs, exitSilent)
	}
	_, b := p.open()
	ttl := max(2*time.Second, b.Info().Limits.MinTTL)
	still := []driver.Session{p.join(b, "still-1", ttl/2), p.join(b, "still-2", ttl)}
	if _, err := still[0].Acquire(p.t.Context(), []driver.Claim{{Shard: "stopped"}}); err != nil {
		p.t.Fatal(err)
	}
	o, code, errs := p.status()
	if watched, err := time.ParseDuration(o.Watched); code != exitSilent || !strings.Contains(errs, "of 2 members none") ||
		len(o.Silent) != 2 || o.Silent[0].Node != "still-1" || o.Silent[0].Shards != 1 || len(o.Beats) != 0 ||
		o.Owned != 0 || o.Unowned != 1 || err != nil || watched < ttl {
		p.t.Errorf("status of members that stand still: got %+v, %d, %q", o, code, errs)
	}
	if out, errs := p.run(exitSilent, "status"); !strings.Contains(out, "still-1, session of-still-1: no heartbeat for its TTL") ||
		strings.Count(errs, "\n") != 1 {
		p.t.Errorf("status: got %s%s", out, errs)
	}
	for _, s := range still {
		if err := s.Close(p.t.Context()); err != nil {
			p.t.Error(err)
		}
	}
}

// TestStatusOfSome: if only one of two members sends heartbeats, status names the silent member. If
// both members send heartbeats, status does not wait for the TTL.
func TestStatusOfSome(t *testing.T) {
	t.Parallel()
	p := sqlitePlace(t)
	p.run(exitOK, "init")
	_, b := p.open()
	alive, still := p.join(b, "alive", time.Hour), p.join(b, "still", 5*time.Second)
	done, both := make(chan struct{}), make(chan struct{})
	beats := make(chan error, 1)
	go func() {
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		var failed error
		for failed == nil {
			select {
			case <-tick.C:
				failed = alive.Beat(t.Context())
				select {
				case <-both:
					if failed == nil {
						failed = still.Beat(t.Context())
					}
				default:
				}
			case <-done:
				beats <- nil
				return
			}
		}
		beats <- failed
	}()
	defer func() {
		close(done)
		if err := <-beats; err != nil {
			t.Error(err)
		}
	}()
	o, code, errs := p.status()
	if code != exitSilent || !strings.Contains(errs, "1 of 2 members") || len(o.Silent) != 1 || o.Silent[0].Node != "still" ||
		len(o.Beats) != 1 || o.Beats[0].Node != "alive" {
		t.Errorf("status: got %+v, %d, %q, want one that is silent", o, code, errs)
	}
	close(both)
	if o, code, errs := p.status(); code != exitOK || len(o.Beats) != 2 || len(o.Silent) != 0 {
		t.Errorf("status: got %+v, %d, %q, want two that beat, of which one has a TTL of an hour", o, code, errs)
	}
}

// TestStatusAsMembersEnd: a member that ends while status waits for it is not silent.
func TestStatusAsMembersEnd(t *testing.T) {
	t.Parallel()
	p := sqlitePlace(t)
	p.run(exitOK, "init")
	a, b := p.open()
	leaves := p.join(b, "leaves", time.Hour)
	type result struct {
		seen map[core.SessionID]time.Time
		err  error
	}
	watched := make(chan result, 1)
	go func() {
		seen, err := a.heartbeats(t.Context(), b, maxTTL)
		watched <- result{seen, err}
	}()
	// The output is the same whether status notices the end before or during the wait.
	if err := leaves.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	select {
	case r := <-watched:
		if r.err != nil {
			t.Error(r.err)
		}
	case <-time.After(limit):
		t.Error("it waits for a member that has ended")
	}
	if o, _, errs := p.status(); o.Members != 0 || len(o.Silent) != 0 || !strings.Contains(errs, "no member") {
		t.Errorf("got %+v, %q", o, errs)
	}
}

// TestLocks: a held lock is shown as a lock, not as a shard or as reserved. A free lock is not
// shown, even if its record still exists.
func TestLocks(t *testing.T) {
	t.Parallel()
	p := sqlitePlace(t)
	p.run(exitOK, "init")
	a, b := p.open()
	s := p.join(b, "worker", 2*time.Second)
	var fences []core.Fence
	for _, shard := range []core.ShardID{"orders", "_control", "_lock.free", "_lock.invoice-123", "_lock._x", "_lock.gone"} {
		session := s
		if shard == "_lock.gone" { // of a session that ends without a release
			session = p.join(b, "gone", 2*time.Second)
		}
		got, err := session.Acquire(t.Context(), []driver.Claim{{Shard: shard}})
		if err != nil || got[0].Err != nil {
			t.Fatal(err, got)
		}
		fences = append(fences, got[0].Fence)
		if session != s {
			if err := session.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := s.Release(t.Context(), fences[2:3]); err != nil {
		t.Fatal(err)
	}
	v, err := a.state(t.Context(), b)
	if err != nil || len(v.Shards) != len(fences) {
		t.Fatalf("SQLite keeps the records %+v (%v), want that of the free lock, too", v.Shards, err)
	}
	if o, _, _ := p.status(); o.Locks != 2 || o.Reserved != 1 || o.Shards != 1 || o.Unowned != 1 || o.Silent[0].Shards != 1 {
		t.Errorf("status: got %+v", o)
	}
	var locks []lockOut
	p.decode(&locks, "shards", "--locks", "--node", "worker")
	if len(locks) != 2 || locks[0] != (lockOut{"_x", "worker", "of-worker", fences[4].Token}) || locks[1].Lock != "invoice-123" {
		t.Errorf("locks: got %+v", locks)
	}
	if p.decode(&locks, "shards", "--locks", "--node", "nobody"); len(locks) != 0 {
		t.Errorf("locks of nobody: got %+v", locks)
	}
	var shards []shardOut
	if p.decode(&shards, "shards", "--all"); len(shards) != 2 || shards[0].Shard != "_control" || shards[1].Shard != "orders" {
		t.Errorf("shards: got %+v", shards)
	}
	p.bad(exitUsage, "choose one", "shards", "--all", "--locks")
	p.bad(exitNotFound, `the lock of that name is "_lock.invoice-123"`, "who", "invoice-123")
	p.bad(exitNotFound, `tenure shards lists those`, "who", "invoice-124")
	if err := s.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestStatusOfTrouble: if a member reports a problem that a person must solve, the exit code is 7.
// The commands status and members show the problem. If the handler of a shard is stuck, a
// resignation of the shard is refused, with advice.
func TestStatusOfTrouble(t *testing.T) {
	t.Parallel()
	p := sqlitePlace(t)
	p.run(exitOK, "init")
	_, b := p.open()
	const trouble = `stuck since 2026-11-28T20:00:00Z: handler of shard "s": restart this process`
	m, err := b.Join(t.Context(), core.Member{Session: "m", Node: "node-a", TTL: time.Hour,
		MemberState: core.MemberState{Meta: map[string]string{mark.TroubleKey: trouble}}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.Acquire(t.Context(), []driver.Claim{{Shard: "s"}, {Shard: "other"}}); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	beats := make(chan error, 1)
	go func() {
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				_ = m.Beat(t.Context())
			case <-done:
				beats <- nil
				return
			}
		}
	}()
	defer func() {
		close(done)
		<-beats
	}()
	o, code, errs := p.status()
	if code != exitSilent || len(o.Troubled) != 1 || o.Troubled[0] != "node-a: "+trouble || !strings.Contains(errs, "node-a: "+trouble) {
		t.Errorf("status: got %+v, %d, %q", o, code, errs)
	}
	if out, _ := p.run(exitOK, "who", "s"); !strings.Contains(out, trouble) {
		t.Errorf("who: got %s", out)
	}
	if out, _ := p.run(exitOK, "members"); strings.Contains(out, mark.TroubleKey) {
		t.Errorf("members: got %s", out)
	}
	p.bad(exitRefused, "its shard is free when its process ends", "resign", "s", "--yes")
	p.run(exitOK, "resign", "other", "--yes", "--dry-run")
}

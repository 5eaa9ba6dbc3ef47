package fsm

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// TestTakeoverOnASlowStore: on any store that answers within a third of the TTL, a takeover takes
// the TTL and three round trips: the proof that the store serves, the eviction, and the claim (V1,
// C5).
func TestTakeoverOnASlowStore(t *testing.T) {
	t.Parallel()
	const ttl = time.Second // of newCalmWorld
	for _, c := range []struct {
		name        string
		trip        time.Duration // of every call and answer together
		spikes      float64       // heartbeats that take spike instead
		spike       time.Duration
		mean, worst time.Duration
	}{
		{name: "quick", worst: ttl * 105 / 100},
		{name: "0.10", trip: ttl / 10, worst: ttl * 135 / 100},
		{name: "0.17", trip: ttl * 17 / 100, worst: ttl * 156 / 100},
		{name: "0.19", trip: ttl * 19 / 100, worst: ttl * 162 / 100},
		{name: "0.20", trip: ttl / 5, worst: ttl * 165 / 100},
		{name: "0.30", trip: ttl * 3 / 10, worst: ttl * 195 / 100},
		{name: "half of the heartbeats 0.25", spikes: 0.5, spike: ttl / 4, mean: ttl * 12 / 10, worst: 2 * ttl},
		{name: "a third of the heartbeats 0.25", spikes: 0.3, spike: ttl / 4, mean: ttl * 12 / 10, worst: 2 * ttl},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var took []time.Duration
			for seed := range uint64(200) {
				w := newCalmWorldOf(seed+1, 1, sameTTL(3))
				w.trip, w.spikes, w.spike = c.trip, c.spikes, c.spike
				w.run(int64(6*time.Second + w.between(0, ttl)))
				took = append(took, w.takeover(t, 30*time.Second))
			}
			slices.Sort(took)
			sum := time.Duration(0)
			for _, d := range took {
				sum += d
			}
			mean, worst := sum/time.Duration(len(took)), took[len(took)-1]
			t.Logf("mean %v, median %v, worst %v", mean, took[len(took)/2], worst)
			if worst > c.worst || c.mean > 0 && mean > c.mean {
				t.Errorf("takeovers took %v on average, %v at worst; want at most %v, %v", mean, worst, c.mean, c.worst)
			}
		})
	}
}

// takeover kills the owner of the first shard. It returns the time until another member holds the
// lease.
func (w *world) takeover(t *testing.T, limit time.Duration) time.Duration {
	t.Helper()
	dead := w.owner(w.store.shards[0].owner.Session)
	if dead == nil {
		t.Fatal("nobody owns the shard")
	}
	dead.up = false
	from := w.now
	for {
		if q := w.owner(w.store.shards[0].owner.Session); q != nil && q.trusts(0, q.local(w.now)) {
			return time.Duration(w.now - from)
		}
		if w.now > from+int64(limit) {
			t.Fatalf("nobody took over within %v", limit)
		}
		w.run(w.now + int64(time.Millisecond))
	}
}

// TestFreshMemberTakesOver: a member that joined just before the holder died takes over at most the
// TTL after its own join. So does a single process that restarts.
func TestFreshMemberTakesOver(t *testing.T) {
	t.Parallel()
	const ttl = time.Second
	for _, c := range []struct {
		name   string
		joined time.Duration // before the holder dies
		atMost time.Duration // after the later of the two
	}{
		{"joined 0.03 TTL before", 30 * time.Millisecond, ttl + 50*time.Millisecond},
		{"started after", -5 * time.Millisecond, ttl + 50*time.Millisecond},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(50) {
				w := newCalmWorldOf(seed+1, 1, sameTTL(2))
				fresh := w.procs[1]
				fresh.up = false
				w.run(int64(3 * time.Second))
				w.after(w.between(0, ttl), func() { w.start(fresh, false) })
				for w.procs[1] == fresh {
					if c.joined < 0 {
						w.procs[0].up = false
					}
					w.run(w.now + int64(time.Millisecond))
				}
				started := w.now
				if c.joined > 0 {
					w.run(w.now + int64(c.joined))
					w.procs[0].up = false
				}
				for !w.procs[1].runs[0].held && w.now < started+int64(5*ttl) {
					w.run(w.now + int64(time.Millisecond))
				}
				if took := time.Duration(w.now - started); took > c.atMost+max(c.joined, 0) {
					t.Fatalf("seed %d: took %v, want at most %v", seed+1, took, c.atMost)
				}
			}
		})
	}
}

// TestMassDeath: if most members die at the same time, the survivors need at most one more TTL to
// find all dead members than after a few deaths (V1, O3).
func TestMassDeath(t *testing.T) {
	massDeath(t, [][2]int{{40, 38}, {40, 20}, {100, 90}, {100, 10}})
}

// TestMassDeathOfHundreds takes half a minute.
func TestMassDeathOfHundreds(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: .ci/run runs it")
	}
	massDeath(t, [][2]int{{460, 440}})
}

func massDeath(t *testing.T, cases [][2]int) {
	t.Parallel()
	const ttl = time.Second
	for _, c := range cases {
		members, dead := c[0], c[1]
		t.Run(fmt.Sprintf("%d of %d", dead, members), func(t *testing.T) {
			t.Parallel()
			w := newCalmWorldOf(uint64(members+dead), 2*members, sameTTL(members))
			w.run(int64(5 * time.Second))
			for _, i := range w.rng.Perm(members)[:dead] {
				w.procs[i].up = false
			}
			from := w.now
			before := w.stats.calls
			left := func() (n int) {
				for i := range w.store.shards {
					if w.owner(w.store.shards[i].owner.Session) == nil {
						n++
					}
				}
				return n
			}
			for left() > 0 && w.now < from+int64(20*ttl) {
				w.run(w.now + int64(10*time.Millisecond))
			}
			took := time.Duration(w.now - from)
			for w.buries() && w.now < from+int64(40*ttl) {
				w.run(w.now + int64(10*time.Millisecond))
			}
			t.Logf("all shards after %v, all dead removed after %v, %d evictions, %d claims", took, time.Duration(w.now-from),
				w.stats.calls[EffEvict]-before[EffEvict], w.stats.calls[EffAcquire]-before[EffAcquire])
			if took > ttl*23/10 {
				t.Errorf("the last takeover came after %v, want at most 2.3 TTL", took)
			}
			if d := time.Duration(w.now - from); d > 3*ttl {
				t.Errorf("the dead were removed after %v, want at most 3 TTL", d)
			}
		})
	}
}

// TestDuelIsDamped: two processes that supersede each other under one label join at growing
// intervals (V4).
func TestDuelIsDamped(t *testing.T) {
	t.Parallel()
	w := newCalmWorldOf(1, 1, sameTTL(2))
	for _, q := range w.procs {
		q.m.cfg.BackoffMax = 30 * time.Second
		q.m.cfg.Member.Node, q.m.cfg.Member.Supersede = "n", true
	}
	w.run(int64(20 * time.Second))
	w.store.remove(w.procs[0].m.Session())
	w.store.remove(w.procs[1].m.Session())
	w.wakeObservers()
	w.run(w.now + int64(10*time.Second))
	early := w.store.stats.supersedes
	w.run(w.now + int64(2*time.Minute))
	late := w.store.stats.supersedes - early
	t.Logf("%d supersessions in the first 10s, %d in the 2 minutes after", early, late)
	if early == 0 || late > 12 {
		t.Errorf("%d supersessions in the first 10s and %d in the 2 minutes after: want some, and at most 12", early, late)
	}
}

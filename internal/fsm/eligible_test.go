package fsm

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/mark"
	"github.com/tenure-go/tenure/internal/proof/share"
)

func (w *world) judged(q *process, why string) { w.step(q, Input{Kind: InEligible, Reason: why}) }

func (w *world) patient(backoff, failback time.Duration) {
	for _, q := range w.procs {
		for _, cfg := range []*Config{&q.cfg, &q.m.cfg} {
			cfg.BackoffMax, cfg.Failback = backoff, failback
		}
	}
}

// holder returns the process that holds the first shard, or nil.
func (w *world) holder() *process {
	if q := w.owner(w.store.shards[0].owner.Session); q != nil && q.trusts(0, q.local(w.now)) {
		return q
	}
	return nil
}

// TestEligibilityAtRandom changes which processes are eligible, with deaths and restarts. While
// some process is eligible, no shard lacks an owner for longer than the TTL and a few calls. Even
// if eligibility changes often, the number of moves in a given time is limited (C15, C16).
func TestEligibilityAtRandom(t *testing.T) {
	t.Parallel()
	const (
		ttl     = time.Second
		backoff = 10 * ttl
		length  = 60 * ttl
		most    = ttl + ttl/2
	)
	for seed := range uint64(share.Of(t, "eligibility seeds", 100, 20)) {
		rng := rand.New(rand.NewPCG(seed, 0x600d))
		n, shards, deaths := 2+rng.IntN(3), 1+rng.IntN(2), seed%2 == 1
		w := newCalmWorldOf(seed+1, shards, sameTTL(n))
		w.patient(backoff, time.Duration(rng.IntN(2))*2*ttl)
		for i, q := range w.procs {
			w.step(q, Input{Kind: InUpdate, State: driver.MemberState{Priority: int32(i % 2)}})
			q.says = q.m.State()
		}
		w.run(int64(3 * ttl))
		since, unowned := make([]int64, n), make([]int64, shards) // when this state began; -1: not in this state
		for i := range unowned {
			unowned[i] = -1
		}
		verdict, death := w.now, w.now+int64(5*ttl)
		for end := w.now + int64(length); w.now < end; w.run(w.now + int64(5*time.Millisecond)) {
			if w.now >= verdict {
				i := rng.IntN(n)
				if q := w.procs[i]; q.up {
					w.judged(q, [...]string{"", "ill"}[rng.IntN(2)])
				}
				verdict = w.now + int64(ttl/3)/int64(n)
			}
			if deaths && w.now >= death {
				if q := w.procs[rng.IntN(n)]; q.up {
					w.restart(q, ttl*3, false)
				}
				death = w.now + int64(6*ttl)
			}
			w.checkGaps(t, since, unowned, most)
		}
		if bound := shards * n * (1 + int(length/backoff)); !deaths && (w.stats.yields > bound || w.stats.grants > shards+2*bound) {
			t.Fatalf("seed %d: %d members gave up shards %d times, of %d grants, in %v with a back-off of %v; want at most %d",
				seed, n, w.stats.yields, w.stats.grants, length, backoff, bound)
		}
		if w.stats.yields == 0 {
			t.Errorf("seed %d: nothing was given up: the run proves too little", seed)
		}
	}
}

// checkGaps checks that no shard lacks an owner for long while some live process is eligible.
func (w *world) checkGaps(t *testing.T, since, unowned []int64, most time.Duration) {
	t.Helper()
	for i, q := range w.procs {
		switch {
		case !q.up || q.barred != "" || q.m.Session() == "":
			since[i] = -1
		case since[i] < 0:
			since[i] = w.now
		}
	}
	for sh := range unowned {
		q := w.owner(w.store.shards[sh].owner.Session)
		switch {
		case q != nil && q.trusts(sh, q.local(w.now)):
			unowned[sh] = -1
			continue
		case unowned[sh] < 0:
			unowned[sh] = w.now
		}
		for i, from := range since {
			if gap := time.Duration(w.now - max(from, unowned[sh])); from >= 0 && gap > most {
				t.Fatalf("%s had no owner for %v although m%d is eligible", w.store.shards[sh].name, gap, i)
			}
		}
	}
}

// TestGiftThatNobodyTakes: if no member takes a shard that a member gave up, the giver gets the
// shard back within the TTL. It gives up the shard at growing intervals, until another member takes
// it (C15).
func TestGiftThatNobodyTakes(t *testing.T) {
	t.Parallel()
	seeds := uint64(20)
	if scenes != nil { // its traces are long
		seeds = 1
	}
	for _, members := range []int{2, 3} {
		for seed := range seeds {
			w := newCalmWorldOf(seed+1, 1, sameTTL(members))
			w.run(int64(3 * time.Second))
			giver := w.holder()
			for _, q := range w.procs {
				if q != giver {
					w.step(q, Input{Kind: InUnwant, Shard: "s0"})
				}
			}
			w.run(w.now + int64(time.Second))
			w.judged(giver, "ill")
			from, gone := w.now, int64(0)
			for w.now < from+int64(64*time.Second) {
				w.run(w.now + int64(5*time.Millisecond))
				if w.holder() == giver {
					gone = w.now
				}
				if gap := time.Duration(w.now - max(gone, from)); gap > 800*time.Millisecond {
					t.Fatalf("seed %d: nobody had the shard for %v", seed, gap)
				}
			}
			if n := w.stats.yields; n < 5 || n > 7 { // after 1, 2, 4 ... s
				t.Fatalf("seed %d: given up %d times in 64 times BackoffMax, want twice as rarely each time", seed, n)
			}
			taker := w.other(giver)
			w.restart(taker, 10*time.Millisecond, false)
			w.run(w.now + int64(100*time.Millisecond))
			taker = w.procs[taker.idx]
			w.step(taker, Input{Kind: InWant, Shard: "s0"})
			w.run(w.now + int64(4*time.Second))
			if w.holder() != taker {
				t.Fatalf("seed %d: a member that joined, and is eligible, was given nothing", seed)
			}
		}
	}
}

// TestSuccessorIsGone: if the successor becomes ineligible while the holder's handler returns, the
// holder keeps the shard (C15).
func TestSuccessorIsGone(t *testing.T) {
	t.Parallel()
	for seed := range uint64(50) {
		w := newCalmWorldOf(seed+1, 1, sameTTL(3))
		w.run(int64(3 * time.Second))
		giver := w.holder()
		w.judged(giver, "ill")
		for _, q := range w.procs {
			w.judged(q, "ill")
		}
		// The new states arrive before the handler has returned.
		r := &giver.runs[0]
		w.run(w.now + int64(w.between(0, 5*time.Millisecond)))
		if r.active && w.stats.yields == 0 {
			t.Fatalf("seed %d: the handler was not asked to stop", seed)
		}
		w.run(w.now + int64(300*time.Millisecond)) // less than the time until the shard is taken back
		if w.holder() == nil {
			t.Fatalf("seed %d: nobody has the shard: its record is %s", seed, showOwner(w.store.shards[0].owner))
		}
		for _, q := range w.procs {
			if q != giver {
				w.judged(q, "")
			}
		}
		w.run(w.now + int64(3*time.Second))
		if q := w.holder(); q == nil || q.barred != "" {
			t.Fatalf("seed %d: the shard is not an eligible member's", seed)
		}
	}
}

// TestAssignedStays: if an assigner named the members that claim a shard first, only the assigner
// moves the shard.
func TestAssignedStays(t *testing.T) {
	t.Parallel()
	w := newCalmWorldOf(1, 1, sameTTL(3))
	w.run(int64(3 * time.Second))
	giver := w.holder()
	for _, q := range w.procs {
		w.step(q, Input{Kind: InPrefer, Shards: []driver.ShardID{"s0"}, Heirs: []Heirs{{giver.m.Session()}}})
	}
	w.judged(giver, "ill")
	w.run(w.now + int64(5*time.Second))
	if w.holder() != giver || w.stats.yields > 0 {
		t.Fatalf("given up %d times", w.stats.yields)
	}
	for _, q := range w.procs {
		w.step(q, Input{Kind: InPrefer, Shards: []driver.ShardID{"s0"}, Heirs: make([]Heirs, 1)})
	}
	w.run(w.now + int64(time.Second))
	if w.holder() == giver {
		t.Error("kept although nobody assigns it any more")
	}
}

// TestIneligibleHaveNoTurn: members that are not eligible are passed over in the order of C9, even
// if they are heirs.
func TestIneligibleHaveNoTurn(t *testing.T) {
	t.Parallel()
	const delay = time.Second
	m := New(Config{Member: driver.Member{Session: "me", Node: "me", TTL: time.Second}, RankDelay: delay})
	m.sess = "me"
	for i := range 3 {
		p := driver.Member{Session: driver.SessionID(fmt.Sprintf("s%d", i)), Node: fmt.Sprintf("n%d", i), TTL: time.Second,
			MemberState: driver.MemberState{Priority: 1, Meta: map[string]string{mark.IneligibleKey: "ill"}}}
		m.addPeer(&p)
	}
	for _, heirs := range []Heirs{{}, {"s0", "s1"}} {
		for _, last := range []driver.SessionID{"", "me"} {
			if d := m.turn(1, heirs, last); d != 0 {
				t.Errorf("heirs %v, releaser %q: a wait of %v for members that are not eligible", heirs, last, d)
			}
		}
	}
	back := driver.Member{Session: "s1", Node: "n1", TTL: time.Second, MemberState: driver.MemberState{Priority: 1, Update: 1}}
	m.addPeer(&back)
	if d := m.turn(1, Heirs{}, ""); d < delay {
		t.Errorf("a wait of %v for a member that is eligible again", d)
	}
}

// TestFailbackStartsAnew: if a member was away for its TTL, or was not eligible, the time that it
// must live restarts (C16).
func TestFailbackStartsAnew(t *testing.T) {
	t.Parallel()
	const failback = 8 * time.Second
	for _, c := range []struct {
		name string
		away func(w *world, q *process)
	}{
		{"silent", func(w *world, q *process) { // for longer than its TTL, but not evicted
			w.down, w.outages = true, append(w.outages, outage{from: w.now})
			w.run(w.now + int64(2*time.Second))
			w.restore()
		}},
		{"not eligible", func(w *world, q *process) {
			w.judged(q, "ill")
			w.run(w.now + int64(time.Second))
			w.judged(q, "")
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := newCalmWorldOf(1, 1, sameTTL(2))
			w.patient(time.Second, failback)
			w.run(int64(3 * time.Second))
			low := w.holder()
			high := w.other(low)
			high.says.Priority = 1
			w.step(high, Input{Kind: InUpdate, State: high.says})
			high.says = high.m.State()
			w.run(int64(failback) / 2)
			c.away(w, high)
			from := w.now
			for w.holder() != high && w.now < from+int64(2*failback) {
				w.run(w.now + int64(10*time.Millisecond))
			}
			if took := time.Duration(w.now - from); took < failback-time.Second || took > failback+2*time.Second {
				t.Errorf("the shard is the higher one's %v after it came back, want %v", took, failback)
			}
			w.run(w.now + int64(5*failback))
			if w.holder() != high || w.stats.yields != 1 {
				t.Errorf("given up %d times", w.stats.yields)
			}
		})
	}
}

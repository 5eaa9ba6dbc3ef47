package fsm

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"reflect"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/proof/share"
)

var (
	seedsFlag = flag.Int("seeds", 2000, "how many seeds the simulation runs")
	seedFlag  = flag.Uint64("seed", 0, "the one seed to run, with a trace; 0: many")
)

const (
	chaosTime  = 20 * time.Second
	calmTime   = 10 * time.Second
	endTime    = 6 * time.Second
	burialTime = time.Minute
)

// newWorld returns the world of a seed. Most worlds have three members, two shards and a TTL of one
// second.
func newWorld(seed uint64, rules ignored) *world {
	rng := rand.New(rand.NewPCG(seed, 0x7e6d5c4b3a291807))
	members := [...]int{3, 3, 3, 2, 4}[rng.IntN(5)]
	shards := [...]int{2, 2, 2, 1, 3}[rng.IntN(5)]
	var names []driver.ShardID
	for i := range shards {
		names = append(names, driver.ShardID(fmt.Sprintf("s%d", i)))
	}
	if seed%3 == 0 { // no random number is drawn, so that the other seeds keep their course
		names[len(names)-1] = driver.LockPrefix + names[len(names)-1]
	}
	w := &world{rng: rng, rules: rules, store: newModelStore(names), plan: newPlan(rng)}
	mixed, oneNode := rng.IntN(3) == 0, rng.IntN(20) == 0
	abandon := rng.IntN(6) == 0
	watchAll, watchFew := 64, 3
	if rng.IntN(8) == 0 {
		watchAll, watchFew = 1, 1+rng.IntN(2) // on the ring
	}
	judge := rand.New(rand.NewPCG(seed, 0x5a6b7c8d9e0f1122)) // a separate source, as below
	var failback time.Duration
	if judge.IntN(3) == 0 {
		failback = time.Duration(1+judge.IntN(30)) * 100 * time.Millisecond
	}
	callTimeout := [...]time.Duration{time.Second, 400 * time.Millisecond, 250 * time.Millisecond}[rng.IntN(3)]
	for i := range members {
		ttl := time.Second
		if mixed {
			ttl = time.Duration(rng.IntN(4)+1) * 500 * time.Millisecond
		}
		node := fmt.Sprintf("n%d", i)
		if oneNode {
			node = "n"
		}
		cfg := Config{
			Member:   driver.Member{Node: node, TTL: ttl, MemberState: driver.MemberState{Priority: int32(rng.IntN(2))}},
			Interval: ttl / 3, Jitter: 0.1, Margin: max(ttl/10, 50*time.Millisecond),
			DrainBudget: 400 * time.Millisecond, Resync: 2 * time.Second, CallTimeout: callTimeout,
			RankDelay: 20 * time.Millisecond, BackoffMin: 50 * time.Millisecond, BackoffMax: time.Second,
			WatchAll: watchAll, WatchFew: watchFew, Seed: rng.Uint64(), Failback: failback,
		}
		if abandon {
			cfg.AbandonAfter = 700 * time.Millisecond
		}
		q := &process{member: newMember(i, 1, cfg, w, w.store, rules), node: node,
			ppm: rng.Int64N(2001) - 1000, up: true, wakeSet: Never}
		w.procs = append(w.procs, q)
	}
	for _, q := range w.procs {
		w.observe(q)
		for sh := range names {
			if w.chance(0.85) {
				w.input(q, w.between(0, 500*time.Millisecond), func() { w.step(q, Input{Kind: InWant, Shard: names[sh]}) })
			}
		}
	}
	w.after(w.between(500*time.Millisecond, 2*time.Second), w.chaos)
	if rng.IntN(50) == 0 {
		w.after(w.between(2*time.Second, chaosTime), w.storeChanges)
	}
	// This source is separate, so that known seeds keep their course.
	if prefs := rand.New(rand.NewPCG(seed, 0x1f2e3d4c5b6a7988)); prefs.IntN(3) == 0 {
		w.after(time.Second, func() { w.prefer(prefs) })
	}
	if locks := rand.New(rand.NewPCG(seed, 0x3c5e7a9b1d2f4061)); locks.IntN(2) == 0 {
		for i, q := range w.procs {
			if locks.IntN(4) > 0 { // otherwise, its lock is not available
				q.cfg.HostLock = fmt.Sprintf("lock of m%d", i)
				q.m.Hold(q.cfg.HostLock)
			}
		}
	}
	if updates := rand.New(rand.NewPCG(seed, 0x2b4d6f8192a3b4c5)); updates.IntN(3) == 0 {
		w.after(time.Second, func() { w.update(updates) })
	}
	if judge.IntN(3) == 0 {
		w.after(time.Second, func() { w.judge(judge) })
	}
	return w
}

// judge occasionally makes one process eligible or ineligible.
func (w *world) judge(judge *rand.Rand) {
	why := [...]string{"", "", "ill", "late"}[judge.IntN(4)]
	q := w.procs[judge.IntN(len(w.procs))]
	w.input(q, 0, func() {
		w.stats.judgements++
		w.step(q, Input{Kind: InEligible, Reason: why})
	})
	if !w.quiet {
		w.after(time.Duration(20+judge.IntN(600))*time.Millisecond, func() { w.judge(judge) })
	}
}

// update occasionally makes one process publish a new state.
func (w *world) update(updates *rand.Rand) {
	st := driver.MemberState{Priority: int32(updates.IntN(3)), Weight: int32(updates.IntN(9)), Draining: updates.IntN(2) == 0}
	q := w.procs[updates.IntN(len(w.procs))]
	w.input(q, 0, func() {
		q.says = st
		w.step(q, Input{Kind: InUpdate, State: st})
	})
	if !w.quiet {
		w.after(time.Duration(20+updates.IntN(300))*time.Millisecond, func() { w.update(updates) })
	}
}

// prefer occasionally gives one process the sessions that claim a shard first: live members,
// members that are gone, the process itself, or none.
func (w *world) prefer(prefs *rand.Rand) {
	var heirs Heirs
	for k := range heirs {
		if n := len(w.store.ids); n > 0 && prefs.IntN(4) != 0 {
			heirs[k] = w.store.ids[prefs.IntN(n)]
		}
	}
	name := w.store.shards[prefs.IntN(len(w.store.shards))].name
	q := w.procs[prefs.IntN(len(w.procs))]
	w.input(q, 0, func() {
		w.stats.prefs++
		w.step(q, Input{Kind: InPrefer, Shards: []driver.ShardID{name}, Heirs: []Heirs{heirs}})
	})
	if !w.quiet {
		w.after(time.Duration(50+prefs.IntN(400))*time.Millisecond, func() { w.prefer(prefs) })
	}
}

// storeChanges answers the next heartbeat of one process with the error that the store has changed
// (S14).
func (w *world) storeChanges() {
	q := w.anyone()
	w.input(q, 0, func() {
		for _, c := range q.calls {
			if c.kind == EffBeat && c.session == q.m.Session() {
				w.step(q, Input{Kind: InBeaten, Call: c.id, Err: driver.ErrStoreChanged})
				return
			}
		}
	})
}

func (w *world) stepped(p *member, cfg *Config, in *Input, out []Effect) {
	if w.recorder != nil {
		w.recorder.Step(fmt.Sprintf("m%d.%d", p.idx, p.inc), cfg, w.now, p.now, in, out)
	}
}

func (w *world) acked(q *process, hw *handlerWrite, seq driver.Seq) {
	if w.recorder != nil {
		w.recorder.Acked(fmt.Sprintf("m%d.%d", q.idx, q.inc), w.now, hw.write.Fence, hw.write.Number, seq)
	}
}

// runSeed runs one world to its end and reports any broken rule.
func runSeed(seed uint64, rules ignored, trace *strings.Builder) (w *world, v *violation) {
	return recordSeed(seed, rules, trace, nil)
}

// recordSeed is like runSeed, with a recorder, which may be nil.
func recordSeed(seed uint64, rules ignored, trace *strings.Builder, r Recorder) (w *world, v *violation) {
	defer func() {
		switch r := recover().(type) {
		case nil:
		case *violation:
			v = r
		default:
			v = &violation{rule: rulePanic, text: fmt.Sprintf("%v\n%s", r, debug.Stack())}
		}
	}()
	w = newWorld(seed, rules)
	w.trace, w.recorder = trace, r
	w.run(int64(chaosTime))
	w.calm()
	w.run(int64(chaosTime + calmTime))
	// Joins whose answers were lost left records without heartbeats. On the ring, these records are
	// evicted a few at a time.
	for end := w.now + int64(burialTime); w.now < end && w.buries(); {
		w.run(w.now + int64(calmTime/4))
	}
	for end := w.now + int64(burialTime); w.now < end && w.gives(); {
		w.run(w.now + int64(calmTime/10))
	}
	w.checkOwners()
	for _, q := range w.procs {
		if q.up && !q.isHalted {
			for sh := range q.want {
				if q.want[sh] {
					w.step(q, Input{Kind: InUnwant, Shard: w.store.shards[sh].name})
					w.tell(q, sh)
				}
			}
		}
	}
	w.run(w.now + int64(endTime))
	w.checkEmpty()
	w.checkKnowledge()
	var left []driver.SessionID
	for _, q := range w.procs {
		if q.up {
			if !q.isHalted {
				left = append(left, q.m.Session())
			}
			w.step(q, Input{Kind: InLeave})
		}
	}
	w.run(w.now + int64(endTime))
	w.checkGone(left)
	return w, nil
}

// gives reports whether a shard is on its way to the member that should have it (C15, C16), or was
// so recently and may come back.
func (w *world) gives() bool {
	for _, q := range w.procs {
		if !q.up || q.isHalted {
			continue
		}
		for i := range q.m.shards {
			s := &q.m.shards[i]
			if s.own != nil && s.own.why != 0 {
				return true
			}
			if g := q.m.gifts[int32(i)]; g != nil && q.local(w.now) < g.at.Add((giftTTLs+1)*q.cfg.Member.TTL) {
				return true
			}
		}
	}
	return false
}

// checkOwners checks that, after all faults, every wanted shard has an owner that runs it, and that
// no record names an unrelated session (W1, C2).
func (w *world) checkOwners() {
	for sh := range w.store.shards {
		s := &w.store.shards[sh]
		wanted := false
		for _, q := range w.procs {
			wanted = wanted || q.up && !q.isHalted && q.want[sh] && q.barred == ""
		}
		owner := w.owner(s.owner.Session)
		switch {
		case owner == nil && wanted:
			w.rules.fail("W1", "%s is wanted and nobody owns it: its record is %s", s.name, showOwner(s.owner))
		case owner == nil && driver.IsLock(s.name) && s.owner.Session != "" && w.anyLive():
			w.rules.fail("C17", "the record of %s is %s, of a session that has ended", s.name, showOwner(s.owner))
		case owner == nil || owner.isHalted:
		case !owner.want[sh]:
			w.rules.fail("C2", "%s is m%d's, which does not want it", s.name, owner.idx)
		case !owner.trusts(sh, owner.local(w.now)) || owner.runs[sh].fence.Token != s.owner.Token:
			w.rules.fail("C2", "%s is m%d's with token %d, which it does not hold", s.name, owner.idx, s.owner.Token)
		}
		for _, q := range w.procs {
			if owner != nil && !owner.isHalted && q.up && !q.isHalted {
				w.checkYield(owner, q, sh)
			}
			if q.up && q != owner && q.trusts(sh, q.local(w.now)) {
				w.rules.fail("C11", "m%d still trusts %s token %d; the record is %s", q.idx, s.name, q.runs[sh].fence.Token, showOwner(s.owner))
			}
		}
	}
}

func (w *world) anyLive() bool {
	return slices.ContainsFunc(w.procs, func(q *process) bool { return q.up && !q.isHalted && q.m.Session() != "" })
}

// checkYield checks that, after all faults, no process keeps a shard that another process should
// have (C15, C16). A process may keep the shard if the other process was given the shard and did
// not take it, or if an assigner moves the shard.
func (w *world) checkYield(owner, q *process, sh int) {
	name := w.store.shards[sh].name
	if driver.IsLock(name) || !q.want[sh] || q.barred != "" || q.says.Draining || q.m.Session() == "" ||
		owner.shunned(owner.m.index[name]) || owner.m.shards[owner.m.index[name]].heirs != (Heirs{}) {
		return
	}
	switch {
	case owner.barred != "":
		w.rules.fail("C15", "m%d keeps %s, is not eligible, and m%d is", owner.idx, name, q.idx)
	case owner.cfg.Failback > 0 && q.says.Priority > owner.says.Priority:
		w.rules.fail("C16", "m%d keeps %s for %v, and m%d has a higher priority", owner.idx, name, owner.cfg.Failback, q.idx)
	}
}

// checkKnowledge checks that, after all faults, every process knows the current records.
func (w *world) checkKnowledge() {
	for _, q := range w.procs {
		if !q.up || q.m.Session() == "" {
			continue
		}
		for _, known := range q.m.AppendShards(nil) {
			if s := w.store.shard(known.Shard); known.Owner != s.owner {
				w.rules.fail("O1", "m%d takes the record of %s for %s; it is %s", q.idx, s.name, showOwner(known.Owner), showOwner(s.owner))
			}
		}
		members := q.m.AppendMembers(nil)
		for _, m := range members {
			stored := w.store.member(m.Session)
			if stored == nil {
				w.rules.fail("O1", "m%d takes session %s for alive", q.idx, m.Session)
				continue
			}
			in, _ := cutLock(stored.MemberState)
			says := in
			if owner := w.owner(m.Session); owner != nil {
				says = owner.shown()
				says.Update = stored.Update
			}
			if !reflect.DeepEqual(m.MemberState, in) || !reflect.DeepEqual(in, says) {
				w.rules.fail("C12", "m%d takes session %s for %+v; its record is %+v, and it says %+v", q.idx, m.Session, m.MemberState, in, says)
			}
		}
		if len(members) != len(w.store.members) {
			w.rules.fail("O1", "m%d knows %d members of %d", q.idx, len(members), len(w.store.members))
		}
	}
}

// buries reports whether live members still have dead members to evict.
func (w *world) buries() bool {
	alive := 0
	for _, m := range w.store.members {
		if w.owner(m.Session) != nil {
			alive++
		}
	}
	return alive > 0 && alive < len(w.store.members)
}

func (w *world) owner(id driver.SessionID) *process {
	for _, q := range w.procs {
		if q.up && id != "" && q.m.Session() == id {
			return q
		}
	}
	return nil
}

// checkEmpty checks that no shard is owned when no shard is wanted, and that every process knows
// that leaving loses nothing.
func (w *world) checkEmpty() {
	for _, q := range w.procs {
		if q.up && !q.m.Settled() {
			w.rules.fail("W1", "m%d is not settled although it wants nothing", q.idx)
		}
		for sh := range w.store.shards {
			if s := &w.store.shards[sh]; q.up && s.owner.Session != "" && s.owner.Session == q.m.Session() {
				w.rules.fail("C2", "%s is m%d's, which wants nothing", s.name, q.idx)
			}
		}
	}
}

// checkGone checks that sessions that left have no record. If a join got no answer, its session may
// have a record until some member evicts it.
func (w *world) checkGone(left []driver.SessionID) {
	for _, id := range left {
		if id != "" && w.store.member(id) != nil {
			w.rules.fail("W1", "session %s left and still has a record", id)
		}
	}
}

// totals has the counts of all seeds, and the minimum of each count per 1,000 seeds. With lower
// counts, zero violations would prove nothing.
type totals struct {
	mu sync.Mutex
	n  []int
}

var totalNames = []struct {
	name  string
	least int // per 1,000 seeds
	of    func(w *world) int
}{
	{"grants", 5000, func(w *world) int { return w.stats.grants }},
	{"takeovers", 1000, func(w *world) int { return w.store.stats.takeovers }},
	{"transfers", 1000, func(w *world) int { return w.store.stats.transfers }},
	{"preemptions", 100, func(w *world) int { return w.store.stats.preemptions }},
	{"supersessions", 50, func(w *world) int { return w.store.stats.supersedes }},
	{"evictions", 1000, func(w *world) int { return w.store.stats.evictions }},
	{"lapses", 1000, func(w *world) int { return w.stats.lapses }},
	{"regained", 500, func(w *world) int { return w.stats.regained }},
	{"commits", 50000, func(w *world) int { return w.store.stats.commits }},
	{"zombie commits refused", 500, func(w *world) int { return w.store.stats.fenced }},
	{"late commits refused", 500, func(w *world) int { return w.store.stats.lateRefused }},
	{"stuck handlers", 100, func(w *world) int { return w.stats.stuck }},
	{"pauses", 1000, func(w *world) int { return w.stats.pauses }},
	{"crashes", 1000, func(w *world) int { return w.stats.crashes }},
	{"dead by their lock", 100, func(w *world) int { return w.stats.dead }},
	{"cuts", 1000, func(w *world) int { return w.stats.cuts }},
	{"updates", 3000, func(w *world) int { return w.store.stats.updates }},
	{"preferences", 5000, func(w *world) int { return w.stats.prefs }},
	{"judgements", 5000, func(w *world) int { return w.stats.judgements }},
	{"shards given to whom they are due", 500, func(w *world) int { return w.stats.yields }},
	{"outages", 100, func(w *world) int { return len(w.outages) }},
}

func (t *totals) add(w *world) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.n == nil {
		t.n = make([]int, len(totalNames))
	}
	for i, x := range totalNames {
		t.n[i] += x.of(w)
	}
}

// TestSimulation runs many worlds and checks every rule at every step.
//
//	go test ./internal/fsm -run TestSimulation -args -seeds 20000
//	go test ./internal/fsm -run TestSimulation -args -seed 42
func TestSimulation(t *testing.T) {
	rules := newIgnored()
	if *seedFlag != 0 {
		trace := &strings.Builder{}
		w, v := runSeed(*seedFlag, rules, trace)
		fmt.Print(trace.String())
		if v != nil {
			t.Fatalf("seed %d breaks %v", *seedFlag, v)
		}
		for _, x := range totalNames {
			t.Logf("%-24s %d", x.name, x.of(w))
		}
		return
	}
	t.Parallel()
	seeds := share.Of(t, "seeds", *seedsFlag, 100)
	var (
		next  atomic.Uint64
		first atomic.Uint64 // lowest seed that failed
		sums  totals
		mu    sync.Mutex
		worst *violation
		wg    sync.WaitGroup
	)
	first.Store(1 << 62)
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for {
				seed := next.Add(1)
				if seed > uint64(seeds) || seed > first.Load() {
					return
				}
				w, v := runSeed(seed, rules, nil)
				if v != nil {
					mu.Lock()
					if seed < first.Load() {
						first.Store(seed)
						worst = v
					}
					mu.Unlock()
					return
				}
				sums.add(w)
			}
		})
	}
	wg.Wait()
	if worst != nil {
		t.Fatalf("seed %d breaks %v\nreplay: go test ./internal/fsm -run 'TestSimulation$' -args -seed %[1]d", first.Load(), worst)
	}
	for i, x := range totalNames {
		t.Logf("%-24s %d", x.name, sums.n[i])
		if least := x.least * seeds / 1000; sums.n[i] < least {
			t.Errorf("%s: %d in %d seeds, want at least %d: the simulation proves too little", x.name, sums.n[i], seeds, least)
		}
	}
}

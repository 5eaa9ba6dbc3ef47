package sharding_test

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/core/control"
	"github.com/tenure-go/tenure/sharding"
	"github.com/tenure-go/tenure/sharding/assign"
)

// The promises about loads:
const (
	atMost      = 1.3   // load of a member in calm times, as a multiple of its goal: High, if reports are a tenth too low
	perMinute   = 0.022 // part of all load that plans move to balance the members: 2 %, plus the noise of reports
	urgently    = 0.55
	calmAfter   = 3 * time.Minute
	hotEnough   = 40 // number of hottest keys, one of which turns cold now and then
	poisonDelay = 3 * time.Second
)

// load contains the keys' load, and the load that plans moved.
type load struct {
	keys     *sharding.KeyLoad
	capacity float64 // of most members
	ledger   []spent // by this assigner
	since    int64   // when members or loads changed last
}

type spent struct {
	at     int64
	part   float64
	moves  int
	urgent bool
}

// beginLoad gives the keys load that changes each minute.
func (w *world) beginLoad() {
	k := sharding.NewKeyLoad(w.c.Seed, w.c.Keys, w.c.Zipf)
	k.Drift(0)
	w.load = &load{keys: k, capacity: 2 * k.Total() / float64(w.c.Members)}
	w.r.Ranges = [2]int{w.c.Shards, w.c.Shards}
	var minute, swap func()
	minute = func() {
		k.Drift(time.Duration(w.now).Hours() / 24)
		w.then(time.Minute, minute)
		w.then(30*time.Second, w.sample)
	}
	swap = func() {
		k.Swap(hotEnough)
		w.r.Swaps++
		w.disturb()
		w.then(w.c.Swap, swap)
	}
	w.then(time.Minute, minute)
	w.then(w.c.Swap, swap)
}

// forget clears the moved loads, which a new assigner does not know.
func (l *load) forget() {
	if l != nil {
		l.ledger = nil
	}
}

func (w *world) disturb() {
	if w.load != nil {
		w.load.since = w.now
	}
}

// tell makes a member report its load if a report is due, and check again an interval later.
func (w *world) tell(m *member) {
	if !m.up {
		return
	}
	w.then(w.c.Interval, func() { w.tell(m) })
	var names []string
	var ranges []assign.Range
	for _, s := range slices.Sorted(maps.Keys(m.slices)) {
		if r := m.slices[s].has; !r.Empty() {
			names, ranges = append(names, string(w.names[s])), append(ranges, r)
		}
	}
	b := w.load.keys.Tell(&m.teller, time.Duration(w.now), w.c.Interval, len(w.records), m.id, m.capacity, names, ranges)
	if b != nil {
		w.then(w.c.Delay, func() {
			w.call("report", 1)
			w.reports[m.id] = b
		})
	}
}

// account records the load that a plan moves, and checks it against the limits.
func (w *world) account(out *sharding.Outcome) {
	w.r.Ranges[0], w.r.Ranges[1] = min(w.r.Ranges[0], len(w.order)), max(w.r.Ranges[1], len(w.order))
	for _, c := range w.planner.Changes() {
		switch {
		case c.Number != out.Number:
		case c.Rest.Empty():
			w.r.Merges++
		default:
			w.r.Splits++
		}
	}
	if w.load == nil {
		return
	}
	x := spent{at: w.now, urgent: out.Plan.Urgent}
	shards := out.Cluster.Shards
	for _, m := range out.Moves {
		if m.From != m.To && (m.Why == assign.Loaded || m.Why == assign.Shared) { // otherwise, the move is written again
			x.part += w.load.keys.Load(shards[m.Shard].Range)
			x.moves++
		}
	}
	for _, m := range out.Plan.Merges {
		if shards[m.From].Owner != shards[m.To].Owner {
			x.part += w.load.keys.Load(shards[m.From].Range)
			x.moves++
		}
	}
	x.part /= w.load.keys.Total()
	w.r.Relief += x.moves
	w.r.Moved += x.part
	w.load.ledger = append(w.load.ledger, x)
	sum, moves, urgent := 0.0, 0, false
	for _, y := range w.load.ledger {
		urgent = urgent || y.urgent && y.at > w.now-int64(2*time.Minute)
		if y.at > w.now-int64(time.Minute) {
			sum += y.part
			moves += y.moves
		}
	}
	if !w.counting || moves == 0 {
		return
	}
	if urgent {
		w.r.Urgent = max(w.r.Urgent, sum)
	} else if moves > 1 {
		w.r.Minute = max(w.r.Minute, sum)
	}
	if sum > urgently || !urgent && moves > 1 && sum > perMinute {
		w.wrong("%d moves within a minute have %.2f %% of all load, urgent: %v", moves, 100*sum, urgent)
	}
}

// sample checks the members' loads and the unserved segments.
func (w *world) sample() {
	held := false
	for shard, since := range w.poison.isolate {
		if limit := cmp.Or(w.c.Quarantine.For, 10*time.Minute) + time.Minute; w.now > since+int64(limit) {
			w.wrong("%s is in quarantine for more than %v", shard, limit)
			w.poison.isolate[shard] = math.MaxInt64 - int64(limit)
		}
	}
	w.unserved(func(s *segment, shard string) {
		held = held || w.withheld(shard)
		w.overdue(s)
	})
	if held || !w.counting || w.now < w.load.since+int64(calmAfter) {
		return
	}
	of, hot := map[*member]float64{}, map[*member]float64{}
	total, caps := 0.0, 0.0
	for i := range w.serving.segments {
		if s := &w.serving.segments[i]; s.by != nil {
			r := w.serving.rangeOf(i)
			x := w.load.keys.Load(r)
			of[s.by.m] += x
			total += x
			hot[s.by.m] = max(hot[s.by.m], w.load.keys.Hottest(r))
		}
	}
	for _, m := range w.members {
		caps += m.capacity
	}
	w.r.Calm++
	for _, m := range w.members {
		fair := total * m.capacity / caps
		if of[m] == 0 && !m.leaving {
			w.wrong("%s has nothing, %v after the last change", m.node, time.Duration(w.now-w.load.since))
		}
		x := of[m] / max(fair, hot[m])
		if w.r.Raw = max(w.r.Raw, of[m]/fair); x > atMost && !w.helps(m, of) {
			w.r.Packed++
			continue
		}
		if w.r.Worst = max(w.r.Worst, x); x > atMost {
			w.wrong("%s has %.2f times its goal, %v after the last change", m.node, x, time.Duration(w.now-w.load.since))
		}
	}
}

// helps reports whether a move of one shard lowers the higher share of two members, one of which is
// m, by a tenth.
func (w *world) helps(m *member, of map[*member]float64) bool {
	for _, sl := range m.slices {
		x := w.load.keys.Load(sl.has)
		for _, o := range w.members {
			if o != m && max((of[m]-x)/m.capacity, (of[o]+x)/o.capacity) < 0.9*of[m]/m.capacity {
				return true
			}
		}
	}
	return false
}

// A poison is a key that kills each member that serves it.
type poison struct {
	rules   []control.Rule // operators'
	hash    uint64
	deadly  bool
	active  bool // the key is deadly, or its shard is in quarantine
	deaths  int
	allowed int
	held    int
	isolate map[string]int64 // shards in quarantine, and since when
}

func (w *world) nextPoison() {
	p := &w.poison
	if w.ending() {
		return
	}
	w.then(w.c.Poison, w.nextPoison)
	if p.active {
		return
	}
	p.hash = w.rng.Uint64()
	if w.load != nil && w.r.Poisoned%2 == 0 {
		p.hash = w.load.keys.Key()
	}
	p.active, p.deadly, p.deaths, p.held, p.allowed = true, true, 0, 0, w.deaths()
	w.r.Poisoned++
	number := w.r.Poisoned
	if s := w.serving.at(p.hash); s.by != nil {
		w.feed(s.by)
	}
	w.then(10*time.Minute, func() {
		if p.active && p.held == 0 && w.r.Poisoned == number {
			w.wrong("hash %x killed %d members, and its shard %s is not in quarantine", p.hash, p.deaths, w.planner.ShardOf(p.hash))
			p.active, p.deadly = false, false
		}
	})
}

// deaths returns the number of deaths after which a shard must be in quarantine.
func (w *world) deaths() int {
	if w.c.Quarantine.Deaths > 0 {
		return w.c.Quarantine.Deaths
	}
	return 3
}

// feed kills a member that serves the deadly key.
func (w *world) feed(sl *slice) {
	p := &w.poison
	if !p.deadly || !sl.has.Has(p.hash) {
		return
	}
	hash := p.hash
	w.then(w.c.Delay+time.Duration(w.rng.Int64N(int64(poisonDelay))), func() {
		if !p.deadly || p.hash != hash || !w.lives(sl) || !sl.has.Has(hash) {
			return
		}
		p.deaths++
		w.r.Killed++
		if (w.boss == nil || w.boss == sl.m) && w.planner.Owner(string(w.names[sl.shard])) != sl.m.id {
			p.allowed++ // no plan states that this member had the shard, so the next assigner cannot know it
		}
		if p.deaths > p.allowed && w.planner.Tied(string(w.names[sl.shard])) {
			p.allowed++
		}
		if p.deaths > p.allowed {
			w.wrong("hash %x killed %d members, want at most %d", p.hash, p.deaths, p.allowed)
		}
		w.crash(sl.m)
	})
}

// quarantines tracks which shards are in quarantine, and repairs deadly keys.
func (w *world) quarantines(pub *sharding.Published) {
	p := &w.poison
	if p.isolate == nil {
		p.isolate = map[string]int64{}
	}
	for _, shard := range pub.Suspects {
		if _, before := p.isolate[shard]; before || !w.planner.Held(shard) {
			continue
		}
		p.isolate[shard] = w.now
		w.r.Held++
		if !p.active || !w.answers(shard, p.hash) {
			w.r.Innocent++
			continue
		}
		if p.held++; p.held == 1 && w.r.Poisoned%3 == 0 {
			p.allowed++ // the key is not repaired: the next owner dies, and no other owner
			continue
		}
		p.deadly = false
		if w.r.Poisoned%3 == 1 {
			w.then(time.Minute+time.Duration(w.rng.Int64N(int64(2*time.Minute))), func() { w.pardon(shard) })
		}
	}
	for _, shard := range pub.Freed {
		delete(p.isolate, shard)
		if p.active && !p.deadly && !w.withheld(w.planner.ShardOf(p.hash)) {
			p.active = false
		}
		w.disturb()
	}
	w.unserved(func(s *segment, shard string) {
		switch {
		case w.withheld(shard):
			s.until, s.why = math.MaxInt64, isolated
		case s.why == isolated && s.until == math.MaxInt64:
			s.since, s.until = w.now, w.now+w.takeover()
		}
	})
}

// answers reports whether a shard has a hash, or must give the hash away.
func (w *world) answers(shard string, hash uint64) bool {
	to := w.planner.ShardOf(hash)
	c := w.planner.Change(to)
	return to == shard || c != nil && c.From == shard
}

// pardon writes an operator's rule that lasts a minute.
func (w *world) pardon(shard string) {
	w.poison.rules = []control.Rule{{Kind: control.Release, Shards: shard, Expires: epoch.Add(time.Duration(w.now) + time.Minute)}}
	w.changes = append(w.changes, change{shard: w.index[core.ShardID(shard)]})
	w.then(time.Minute, func() { w.poison.rules = nil })
}

func (w *world) endOfDay() {
	w.unserved(func(s *segment, _ string) { w.overdue(s) })
}

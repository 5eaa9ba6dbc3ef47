package sharding

import (
	"math"
	"slices"
)

// Balance is the assigner: it weighs how even the members are against what moves. The zero
// value is ready for use, and is the default.
//
// While no loads are known, or all are about the same, it balances counts: every member gets
// the floor or the ceiling of its weighted share. Without rules it makes exactly the fewest
// moves that lead there; with them the balance is as good as moves of single shards make it.
//
// With loads it lowers the highest share of any member's capacity. A member's fair share is the
// part of all load that its capacity has in that of all members; its goal is that, or its
// hottest key or whole shard if that alone is more, since nothing divides it. A member is
// relieved when it is above High times its share, down to Low, by as little load as possible;
// one below half its share is filled. Of a Keyspace's ranges it splits those that are hot,
// gives a hot key a range of its own, and merges cold neighbours.
//
// What moves for balance's sake is bounded by MovesPerMinute. The bound is half of all load where
// a member is new, or above its capacity, or half a share above its goal with more to be moved
// than MovesPerMinute allows in 90 s; and for a minute after that. Orphans, drains and rules are
// not counted.
type Balance struct {
	Rules Rules
	// High and Low are multiples of a member's share of the load: relief begins above High and
	// ends at Low. Defaults 1.1 and 1.04; High at least Low, both at least 1.
	High, Low float64
	// MovesPerMinute is the part of all load that moves in a minute for balance's sake, or one
	// shard if that is more and cannot be divided. Default 0.02. See Cluster.Moved.
	MovesPerMinute float64
	// Budget is how many shards one plan moves for balance's sake; 0: all. The next plan goes on.
	Budget int
	// Reserve is the part of Member.Capacity that is kept for load to come, as far as the
	// members have that much. Default 0.2; negative: none.
	Reserve float64
	// SplitAbove is the load, as a part of the mean member's share, above which a range is
	// split, into ranges of at most half of that. Default 0.3.
	SplitAbove float64
	// MinShards and MaxShards bound the number of ranges: below, the hottest are split; above,
	// the coldest are merged. Defaults: as many as the Keyspace began with, and 16 for each
	// member more. They hold as far as MaxCuts and the keys allow.
	MinShards, MaxShards int
}

var _ Assigner = Balance{}

const (
	// A member above this multiple of its share is relieved by the larger bound, if the other one
	// would take more than that many minutes.
	urgent, patience = 1.5, 1.5
	// urgentMoves is the larger bound, as a part of all load in a minute.
	urgentMoves = 0.5
	// alike is how many times the least load of a shard the greatest may be for all to count
	// as the same.
	alike = 1.25
)

// resolve returns the assigner with its defaults, for a number of members.
func (a Balance) resolve(c *Cluster, members int) Balance {
	either := func(x, def float64) float64 {
		if x > 0 {
			return x
		}
		return def
	}
	a.Low = max(either(a.Low, 1.04), 1)
	a.High = max(either(a.High, 1.1), a.Low)
	a.MovesPerMinute = either(a.MovesPerMinute, 0.02)
	a.SplitAbove = either(a.SplitAbove, 0.3)
	if a.Reserve == 0 {
		a.Reserve = 0.2
	}
	a.Reserve = min(max(a.Reserve, 0), 1)
	if a.MinShards <= 0 {
		a.MinShards = max(c.Begun, 1)
	}
	if a.MaxShards <= 0 {
		a.MaxShards = a.MinShards + 16*members
	}
	a.MaxShards = max(a.MaxShards, a.MinShards)
	return a
}

// Plan implements Assigner.
func (a Balance) Plan(c *Cluster) *Plan {
	d := newDraft(c, a.Rules)
	l := newLoads(d, a)
	if l.counts {
		l.byCount()
	} else {
		l.byLoad()
	}
	p := d.plan(l.share)
	if l.known && !c.Frozen {
		l.split(p)
		l.merge(p)
	}
	p.Unfinished, p.Moved, p.Urgent = l.unfinished, l.moved, l.alarm
	return p
}

// byCount gives every member its share of the number of shards.
func (l *loads) byCount() {
	d, share := l.d, l.share
	l.sum()
	limit := l.limit()
	if d.rules != nil {
		l.byRules(limit)
		l.sum()
		return
	}
	lists := d.owned(func(m int) bool { return d.have[m] > share[m] })
	for m, list := range lists {
		k := d.have[m] - share[m]
		if k <= 0 || list == nil {
			continue
		}
		l.unfinished = l.unfinished || k > len(list)
		for _, s := range d.latest(list, k, m) {
			if !l.affords(s, limit) {
				break
			}
			l.spend(s)
			d.release(s, Shared)
		}
	}
	d.fill(share)
	l.sum()
}

// byRules gives every member its share of the number of shards, as far as rules allow.
func (l *loads) byRules(limit float64) {
	d, share := l.d, l.share
	d.grant(func(int32) float64 { return 1 }, func(m int32) float64 { return float64(share[m]) }, 0)
	d.place(func(_, m int32) float64 { return float64(d.have[m]-share[m]) / float64(max(share[m], 1)) }, func(int32, int32) {})
	// Shards bound to a zone are shared out among its members first; then others make room.
	bound := make([]int, len(share))
	for s, o := range d.owner {
		if d.rules.bound(int32(s)) {
			bound[o]++
		}
	}
	for i, have := range [][]int{bound, d.have} {
		first := i == 0
		for m, list := range d.owned(func(m int) bool { return have[m] > share[m] }) {
			for _, s := range d.latest(list, len(list), m) {
				if have[m] <= share[m] {
					break
				}
				to := d.best(s, strictly, func(_, x int32) float64 {
					if have[x] >= share[x] {
						return never
					}
					return 0
				})
				if to == None || d.rules.bound(s) != first || !l.affords(s, limit) {
					continue
				}
				l.spend(s)
				d.pass(s, to, Shared)
				if first {
					bound[m]--
					bound[to]++
				}
			}
		}
	}
}

// byLoad evens out the members' loads.
func (l *loads) byLoad() {
	d := l.d
	d.grant(func(s int32) float64 { return l.shard[s] }, func(m int32) float64 {
		return max(l.a.Low*l.fair(m), l.usable(m))
	}, l.a.High/l.a.Low-1)
	l.sum()
	d.place(func(s, m int32) float64 {
		if d.c.Members[m].Full && len(d.c.Members) > 1 {
			return rarely
		}
		return (l.of[m] + l.shard[s]) / l.cap[m]
	}, func(s, m int32) { l.of[m] += l.shard[s] })
	l.lists = d.owned(func(int) bool { return true })
	l.heat()
	limit := l.limit()
	l.relieve(limit)
	if !l.alarm && !d.c.Urgent {
		limit /= 2
	}
	l.fill(limit)
}

// relieve takes load from members above High until they are at Low: the hottest first.
func (l *loads) relieve(limit float64) {
	var hot []int32
	for m := range l.of {
		if l.d.fits[m] && l.of[m] > l.level(int32(m), l.a.High) {
			hot = append(hot, int32(m))
		}
	}
	excess := func(m int32) float64 { return (l.of[m] - l.level(m, l.a.Low)) / l.cap[m] }
	for len(hot) > 0 {
		at, most := 0, excess(hot[0])
		for i, m := range hot {
			if x := excess(m); x > most {
				at, most = i, x
			}
		}
		if most <= 0 {
			return
		}
		from := hot[at]
		want := l.of[from] - l.level(from, l.a.Low)
		if l.step(from, None, want, limit) {
			continue
		}
		hot = slices.Delete(hot, at, at+1)
		if l.of[from] > l.level(from, l.a.High) {
			l.wish(from, min(want, l.a.MovesPerMinute*l.total))
		}
	}
}

// fill gives members that are new, or below half their share, what those with the highest shares
// can spare. It leaves half of MovesPerMinute to relief. Where a few keys have so much of the load that
// nobody else has a whole share, the share is that of the rest.
func (l *loads) fill(limit float64) {
	l.fillTo(l.total/l.caps, limit)
	l.fillTo(l.divisible(), limit)
}

// fillTo fills members up to a part of their capacity.
func (l *loads) fillTo(part, limit float64) {
	fair := func(m int32) float64 { return part * l.cap[m] }
	for i := range l.of {
		to := int32(i)
		if !l.open(to) || l.of[i] >= fair(to)/2 && l.d.had[i] > 0 {
			continue
		}
		stuck := make([]bool, len(l.of))
		stuck[to] = true
		for l.of[to] < (2-l.a.High)*fair(to) {
			from, most := int32(None), 0.0
			for m := range l.of {
				if x := l.of[m] / l.cap[m]; l.d.fits[m] && !stuck[m] && x > most {
					from, most = int32(m), x
				}
			}
			if from == None {
				break
			}
			want := l.of[from] - (2-l.a.Low)*fair(from)
			if want <= 0 || !l.step(from, to, want, limit) {
				stuck[from] = true
			}
		}
	}
}

// trifle is the part of the mean member's share below which a shard's load is not worth a move.
const trifle = 1e-4

// step moves one shard from a member to another, or to the one whose share is the lowest then: the
// largest of at most want that fits, or else the smallest above, if it helps.
func (l *loads) step(from, to int32, want, limit float64) bool {
	coldest := to
	if to == None {
		coldest = l.coldest(from, 0)
	}
	if coldest == None {
		return false
	}
	fit := min(want, l.level(coldest, l.a.Low)-l.of[coldest], limit*l.total-l.d.c.Moved-l.moved)
	list := l.sorted(from)
	k, _ := l.search(list, math.Nextafter(fit, math.MaxFloat64))
	if k < len(list) && (k == 0 || l.shard[list[k-1]] < fit/4) && l.try(from, to, k, limit, true) {
		return true
	}
	for i := k - 1; i >= 0 && i >= k-maxTries && l.shard[list[i]] > trifle*l.unit; i-- {
		if l.try(from, to, i, limit, false) {
			return true
		}
	}
	for i := k; i < len(list) && i < k+maxTries; i++ {
		if l.try(from, to, i, limit, true) {
			return true
		}
	}
	return false
}

// maxTries bounds how many shards of a member step looks at, of each kind, where rules or a
// budget forbid the first.
const maxTries = 32

// try moves the shard at a place of a member's list, if it helps. One larger than wanted must
// lower the higher share of the two members by half of what the giver loses at least.
func (l *loads) try(from, to int32, at int, limit float64, larger bool) bool {
	d, s, why := l.d, l.lists[from][at], Loaded
	x := l.shard[s]
	switch {
	case to == None && d.rules == nil:
		to = l.coldest(from, x)
	case to == None:
		to = d.best(s, strictly, func(_, m int32) float64 {
			if m == from || !l.open(m) {
				return never
			}
			return (l.of[m] + x) / l.cap[m]
		})
	case !d.rules.allows(s, to, strictly):
		return false
	default:
		why = Shared
	}
	if to == None || to == from {
		return false
	}
	before, after := l.of[from]/l.cap[from], max((l.of[from]-x)/l.cap[from], (l.of[to]+x)/l.cap[to])
	least := 0.0
	if larger {
		least = x / l.cap[from] / 2
	} else if l.of[to]+x > l.level(to, l.a.Low) {
		return false
	}
	if before-after <= least || !l.affords(s, limit) {
		return false
	}
	l.spend(s)
	l.give(s, at, from, to)
	d.pass(s, to, why)
	return true
}

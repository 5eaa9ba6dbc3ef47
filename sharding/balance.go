package sharding

import (
	"math"
	"slices"
)

// Balance is the default Assigner. It weighs an even load against the number of moves. The zero
// value is ready for use.
//
// While no loads are known, or all loads are about the same, it balances counts. Every member gets
// the floor or the ceiling of its weighted share. Without rules, it makes the fewest moves that
// lead there. With rules, the balance is as good as moves of single shards can make it.
//
// With loads, it lowers the highest share of any member's capacity. A member's fair share of all
// load is in proportion to its capacity. Its goal is that share. If its hottest key or whole shard
// has more load, which cannot be divided, that load is the goal. If a member is above High times
// its share, Balance relieves it down to Low, by as little load as possible. It gives load to a
// member that is below half its share. In a Keyspace, it splits hot ranges, gives a hot key its
// own range, and merges cold neighbours.
//
// MovesPerMinute limits moves that balance the members. The limit is half of all load if a member
// is new or above its capacity. The same applies if a member is half a share above its goal and
// MovesPerMinute would take more than 90 s. The higher limit then lasts a minute longer. Orphans,
// drains and rules do not count.
type Balance struct {
	// Rules restrict ownership.
	Rules Rules `yaml:"rules"`
	// High is a multiple of a member's share of the load, above which Balance relieves the member.
	// Default 1.1; at least Low.
	High float64 `yaml:"high"`
	// Low is the multiple of the share down to which Balance relieves it. Default 1.04; at least 1.
	Low float64 `yaml:"low"`
	// MovesPerMinute is the part of all load that moves in a minute to balance the members. A
	// single shard with more load, which cannot be divided, may move. Default 0.02. See
	// Cluster.Moved.
	MovesPerMinute float64 `yaml:"moves_per_minute"`
	// Budget is the number of shards that one plan moves to balance the members; 0: no limit. The
	// next plan continues.
	Budget int `yaml:"budget"`
	// Reserve is the part of Member.Capacity that is kept for future load, if the members have as
	// much. Default 0.2; negative: none.
	Reserve float64 `yaml:"reserve"`
	// SplitAbove is the load, as a part of the mean member's share, above which a range is split,
	// into ranges of at most half of SplitAbove. Default 0.3.
	SplitAbove float64 `yaml:"split_above"`
	// MinShards is the least number of ranges: below it the hottest are split, if they can be.
	// Default: the number with which the Keyspace began.
	MinShards int `yaml:"min_shards"`
	// MaxShards is the largest number of ranges: above it the coldest are merged. Default: MinShards
	// and 16 for each member.
	MaxShards int `yaml:"max_shards"`
}

var _ Assigner = Balance{}

const (
	// If a member is above urgent times its share, the larger limit applies. It does not apply if
	// MovesPerMinute would relieve the member within patience minutes.
	urgent, patience = 1.5, 1.5
	// urgentMoves is the larger limit, as a part of all load in a minute.
	urgentMoves = 0.5
	// alike is a ratio of the greatest load of a shard to the least. Up to it, all loads count as
	// the same.
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

// check returns an error if a value is not one that the comments allow.
func (a Balance) check() error {
	for _, x := range []struct {
		name string
		v    float64
	}{
		{"High", a.High}, {"Low", a.Low}, {"MovesPerMinute", a.MovesPerMinute}, {"SplitAbove", a.SplitAbove},
		{"Budget", float64(a.Budget)}, {"MinShards", float64(a.MinShards)}, {"MaxShards", float64(a.MaxShards)},
	} {
		if !(x.v >= 0) || math.IsInf(x.v, 0) {
			return optErr("Balance.%s %v is no number of 0 or more: leave it 0 for its default", x.name, x.v)
		}
	}
	switch {
	case a.Low != 0 && a.Low < 1 || a.High != 0 && a.High < max(a.Low, 1):
		return optErr("Balance.Low %v, Balance.High %v: use at least 1 for both, and no Low above High", a.Low, a.High)
	case a.MaxShards != 0 && a.MaxShards < a.MinShards:
		return optErr("Balance.MinShards %d is above Balance.MaxShards %d: lower it", a.MinShards, a.MaxShards)
	case math.IsNaN(a.Reserve) || a.Reserve > 1:
		return optErr("Balance.Reserve %v is above 1: use a part such as 0.2", a.Reserve)
	}
	return a.Rules.check()
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
	// Shards bound to a zone are first shared among its members. Then other shards make room.
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

// relieve moves load from members above High until they are at Low, the hottest member first.
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

// fill gives load from the members with the highest shares to members that are new or below half
// their share. It leaves half of MovesPerMinute to relief. If a few keys have so much of the load
// that no other member has a whole share, the share is computed without that load.
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

// step moves one shard from a member to another, or to the member whose share is then the lowest.
// It takes the largest shard of at most want that fits, or otherwise the smallest above, if it
// helps.
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

// maxTries limits the shards of a member that step tries, of each kind, if rules or a budget forbid
// the first.
const maxTries = 32

// try moves the shard at a place of a member's list, if it helps. If it is larger than wanted, it
// must lower the higher share of the two members by at least half of the giver's loss.
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

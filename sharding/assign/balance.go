package assign

import (
	"math"
	"slices"
)

// Balance, the default Assigner, weighs an even load against the number of moves. The zero value of
// Balance is ready for use.
//
// While no loads are known, or all loads are about the same, Balance evens out the number of
// shards. Every member gets its weighted share, rounded down or up. Without rules, Balance makes
// the fewest moves that achieve these shares. With rules, Balance comes as close to these shares as
// single-shard moves allow.
//
// If the loads differ, Balance lowers the highest ratio of load to capacity among the members. A
// member's fair share of all load is proportional to its capacity, and is normally the member's
// goal. If a single key or indivisible shard of the member has more load than this share, that load
// is the goal. If a member's load is above High times its share, Balance lowers the load to Low
// times the share, and moves the least possible load. Balance also moves load to members that are
// below half their share. In a Keyspace, Balance splits hot ranges, gives each hot key its own
// range, and merges cold neighbors.
//
// MovesPerMinute limits the moves that balance the members. The limit rises to half of all load if
// a member is new or above its capacity. The limit also rises if a member is half a share above its
// goal and relief at MovesPerMinute would take more than 90 s. The limit falls again a minute after
// the reason no longer applies. Moves that a lost owner, a drain or a rule causes do not count
// toward the limit.
type Balance struct {
	// Rules restrict ownership.
	Rules Rules `yaml:"rules"`
	// High is the multiple of a member's share above which Balance moves load away from the member.
	// The default is 1.1, and the minimum is Low.
	High float64 `yaml:"high"`
	// Low is the multiple of a member's share to which Balance lowers the member's load. The
	// default is 1.04, and the minimum is 1.
	Low float64 `yaml:"low"`
	// MovesPerMinute is the maximum fraction of all load that moves in a minute to balance the
	// members. An indivisible shard with more load may still move. The default is 0.02. See
	// Cluster.Moved.
	MovesPerMinute float64 `yaml:"moves_per_minute"`
	// Budget limits how many shards one plan moves to balance the members. Later plans move the
	// rest. By default (0), there is no limit.
	Budget int `yaml:"budget"`
	// Reserve is the fraction of Member.Capacity that Balance keeps free for future load, if the
	// members have enough capacity. The default is 0.2. A negative value means no reserve.
	Reserve float64 `yaml:"reserve"`
	// SplitAbove is the load above which Balance splits a range, as a fraction of the members' mean
	// share. The load of each new range is at most half of this limit. The default is 0.3.
	SplitAbove float64 `yaml:"split_above"`
	// MinShards is the minimum number of ranges. With fewer ranges, Balance splits the hottest
	// divisible ranges. The default is the Keyspace's initial number of ranges.
	MinShards int `yaml:"min_shards"`
	// MaxShards is the maximum number of ranges. With more ranges, Balance merges the coldest
	// ranges. The default is MinShards plus 16 for each member.
	MaxShards int `yaml:"max_shards"`
}

var _ Assigner = Balance{}

const (
	// If a member's load is above urgent times its share, the higher limit applies, unless the
	// member can be relieved at MovesPerMinute within patience minutes.
	urgent, patience = 1.5, 1.5
	// The higher limit is a fraction of all load in a minute.
	urgentMoves = 0.5
	// Up to this ratio of the highest shard load to the lowest, all loads count as the same.
	alike = 1.25
)

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

// Validate returns an error that matches core.ErrInvalid if a field has a value that its comment
// excludes.
func (a Balance) Validate() error {
	for _, x := range []struct {
		name string
		v    float64
	}{
		{"High", a.High}, {"Low", a.Low}, {"MovesPerMinute", a.MovesPerMinute}, {"SplitAbove", a.SplitAbove},
		{"Budget", float64(a.Budget)}, {"MinShards", float64(a.MinShards)}, {"MaxShards", float64(a.MaxShards)},
	} {
		if !(x.v >= 0) || math.IsInf(x.v, 0) {
			return invalid("Balance.%s %v is no number of 0 or more: leave it 0 for its default", x.name, x.v)
		}
	}
	switch {
	case a.Low != 0 && a.Low < 1 || a.High != 0 && a.High < max(a.Low, 1):
		return invalid("Balance.Low %v, Balance.High %v: use at least 1 for both, and no Low above High", a.Low, a.High)
	case a.MaxShards != 0 && a.MaxShards < a.MinShards:
		return invalid("Balance.MinShards %d is above Balance.MaxShards %d: lower it", a.MinShards, a.MaxShards)
	case math.IsNaN(a.Reserve) || a.Reserve > 1:
		return invalid("Balance.Reserve %v is above 1: use a part such as 0.2", a.Reserve)
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

// byCount gives every member its share of the shards, regardless of load.
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

// byRules gives every member its share of the shards, as far as the rules allow.
func (l *loads) byRules(limit float64) {
	d, share := l.d, l.share
	d.grant(func(int32) float64 { return 1 }, func(m int32) float64 { return float64(share[m]) }, 0)
	d.place(func(_, m int32) float64 { return float64(d.have[m]-share[m]) / float64(max(share[m], 1)) }, func(int32, int32) {})
	// First, the shards that are bound to a zone are distributed among the zone's members. Then,
	// other shards make room for the bound shards.
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

// Beginning with the hottest member, relieve lowers the load of members above High to Low.
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

// fill moves load from the members with the highest shares to members that are new or below half
// their share. Half of MovesPerMinute is left for relieve. A few keys may have so much of the load
// that no other member can reach its share. The second call to fillTo therefore computes the share
// without these keys.
func (l *loads) fill(limit float64) {
	l.fillTo(l.total/l.caps, limit)
	l.fillTo(l.divisible(), limit)
}

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

// A shard with less load than this fraction of the mean member's share is not worth a move.
const trifle = 1e-4

// step moves one shard from a member to another, or to the member that then has the lowest share.
// It takes the largest fitting shard with a load of at most want. If no shard fits, it takes the
// smallest shard above want, provided that this move helps.
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

// While rules or a budget forbid moves, step tries up to maxTries shards of each kind for one
// member.
const maxTries = 32

// If the shard is larger than wanted, its move must lower the higher of the two members' shares by
// at least half of what the giver loses.
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

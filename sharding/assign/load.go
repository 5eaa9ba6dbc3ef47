package assign

import (
	"cmp"
	"math"
	"slices"
)

type loads struct {
	d      *draft
	a      Balance
	known  bool      // the load of at least one shard is known
	counts bool      // counts of shards represent loads
	shard  []float64 // by shard; the mean load if the load is unknown
	total  float64
	share  []int // by member: number of shards at equal loads
	of     []float64
	cap    []float64 // in the same unit for all members; never 0, because it is a divisor
	caps   float64
	unit   float64 // the mean member's share of the load
	// These are the largest indivisible parts of each member's load: hot among all its shards, and
	// held among those that are not in its list.
	hot, held []float64
	lists     [][]int32 // by member: shards that may be moved
	ascending []bool    // by member: the list is in the order of loads
	wishes    []wish
	ranges    int            // including the splits of this plan
	touched   map[int32]bool // by splits and merges

	moves      int
	moved      float64 // load moved to balance the members
	unfinished bool
	alarm      bool // a member is new or has far too much load
}

// wish requests that a member's ranges be split, so that each has at most the given load.
type wish struct {
	member int32
	size   float64
}

func newLoads(d *draft, a Balance) *loads {
	n := len(d.have)
	l := &loads{
		d: d, shard: make([]float64, len(d.owner)), of: make([]float64, n), cap: make([]float64, n),
		hot: make([]float64, n), held: make([]float64, n), ascending: make([]bool, n),
	}
	number, mean := 0, 1.0
	for s := range d.c.Shards {
		if x := d.c.Shards[s].Load; x > 0 && !math.IsInf(x, 1) {
			l.shard[s] = x
			l.total += x
			number++
		}
	}
	if l.known = number > 0; l.known {
		mean = l.total / float64(number)
	}
	for s := range l.shard {
		x := &d.c.Shards[s]
		if l.shard[s] == 0 && !x.told() && !x.Busy {
			l.shard[s] = mean
			l.total += mean
		}
		if x.ranged() {
			l.ranges++
		}
	}
	l.counts = l.even()
	members := l.capacities()
	l.unit = l.total / float64(max(members, 1))
	l.a = a.resolve(d.c, members)
	l.share = shares(len(d.c.Shards), d.c.Members, d.fits, d.have)
	l.sum()
	return l
}

// If Parts is set, a known load may be 0.
func (s *Shard) told() bool { return s.Load > 0 || s.Parts != nil }

// If a member publishes no capacity, its capacity is derived from the other members' capacities by
// weight. The result is the number of members that have any capacity.
func (l *loads) capacities() (members int) {
	weight, _, _ := weights(l.d.c.Members, l.d.fits)
	said, of := 0.0, 0.0
	for m, w := range weight {
		if c := l.d.c.Members[m].Capacity; c > 0 && w > 0 {
			said += c
			of += float64(w)
		}
	}
	if of == 0 {
		said, of = 1, 1
	}
	for m, w := range weight {
		if w > 0 {
			members++
			if l.cap[m] = l.d.c.Members[m].Capacity; l.cap[m] <= 0 {
				l.cap[m] = float64(w) * said / of
			}
			l.caps += l.cap[m]
		} else {
			l.cap[m] = 1e-9
		}
	}
	l.caps = max(l.caps, 1e-9)
	return members
}

// If the result is true, a plan may balance the number of shards instead of their loads.
func (l *loads) even() bool {
	if !l.known {
		return true
	}
	for m := range l.d.c.Members {
		if l.d.c.Members[m].Capacity > 0 {
			return false
		}
	}
	return slices.Max(l.shard) <= alike*slices.Min(l.shard)
}

func (l *loads) sum() {
	clear(l.of)
	for s, o := range l.d.owner {
		if o != None {
			l.of[o] += l.shard[s]
		}
	}
}

func (l *loads) fair(m int32) float64 { return l.total * l.cap[m] / l.caps }

// divisible returns the average fraction of capacity that members use, without members whose
// indivisible load is above that average, and without this load.
func (l *loads) divisible() float64 {
	total, caps := l.total, l.caps
	full := make([]bool, len(l.of))
	for again := true; again; {
		again = false
		for m, x := range l.hot {
			if l.d.fits[m] && !full[m] && l.cap[m] < caps && x/l.cap[m] > total/caps {
				full[m], again = true, true
				total, caps = total-x, caps-l.cap[m]
			}
		}
	}
	return max(total, 0) / caps
}

// If the member's capacity is unknown, usable returns 0.
func (l *loads) usable(m int32) float64 { return (1 - l.a.Reserve) * l.d.c.Members[m].Capacity }

// level returns a member's goal, which is its fair share or its indivisible load, whichever is
// larger, plus x-1 times its fair share. Near the member's capacity, the addition is halved.
func (l *loads) level(m int32, x float64) float64 {
	fair := l.fair(m)
	goal, above := max(fair, l.hot[m]), (x-1)*fair
	if l.d.c.Members[m].Capacity > 0 {
		return max(min(goal+above, l.usable(m)*x/l.a.High), goal+above/2)
	}
	return goal + above
}

// limit returns the fraction of all load that may move in a minute. If MovesPerMinute is too low
// now, or was too low recently, the result is urgentMoves.
func (l *loads) limit() float64 {
	over, excess := false, 0.0
	for i := range l.of {
		m, c := int32(i), l.d.c.Members[i].Capacity
		if l.d.fits[i] {
			over = over || l.of[i] > l.level(m, urgent)
			excess += max(l.of[i]-l.level(m, l.a.Low), 0)
			l.alarm = l.alarm || c > 0 && l.of[i] > max(c, l.level(m, l.a.High))
		}
		l.alarm = l.alarm || l.open(m) && l.d.had[i] == 0 && l.share[i] > 0
	}
	l.alarm = l.alarm || over && excess > patience*l.a.MovesPerMinute*l.total
	if l.alarm || l.d.c.Urgent {
		return max(urgentMoves, l.a.MovesPerMinute)
	}
	return l.a.MovesPerMinute
}

func (l *loads) open(m int32) bool {
	return l.d.fits[m] && l.cap[m] > 1e-9 && !l.d.c.Members[m].Full
}

// Once per minute, one indivisible shard may move although its load is above the limit.
func (l *loads) affords(s int32, limit float64) bool {
	if l.free(s) {
		return true
	}
	x, sum := l.shard[s], l.d.c.Moved+l.moved
	enough := !l.known || sum+x <= limit*l.total ||
		sum == 0 && (x <= l.a.SplitAbove*l.unit/4 || !l.d.c.Shards[s].divisible() || l.counts)
	if l.a.Budget > 0 && l.moves >= l.a.Budget || !enough {
		l.unfinished = true
		return false
	}
	return true
}

func (l *loads) spend(s int32) {
	if l.free(s) {
		return
	}
	l.moves++
	if l.known {
		l.moved += l.shard[s]
	}
}

// free reports whether a shard moves in any case, so that its load does not count.
func (l *loads) free(s int32) bool { return l.d.owner[s] != l.d.c.Shards[s].Owner }

func (l *loads) heat() {
	for s, o := range l.d.owner {
		if o == None {
			continue
		}
		x := l.d.c.Shards[s].indivisible(l.shard[s])
		l.hot[o] = max(l.hot[o], x)
		if y := &l.d.c.Shards[s]; y.held() || l.d.c.Frozen || y.Owner != o {
			l.held[o] = max(l.held[o], x)
		}
	}
}

// A moved shard is no longer in any member's list.
func (l *loads) give(s int32, at int, from, to int32) {
	x := l.shard[s]
	l.of[from] -= x
	l.of[to] += x
	l.lists[from] = slices.Delete(l.lists[from], at, at+1)
	whole := l.d.c.Shards[s].indivisible(x)
	l.held[to] = max(l.held[to], whole)
	l.hot[to] = max(l.hot[to], whole)
	if whole >= l.hot[from] {
		l.hot[from] = l.held[from]
		for _, r := range l.lists[from] {
			l.hot[from] = max(l.hot[from], l.d.c.Shards[r].indivisible(l.shard[r]))
		}
	}
}

// coldest returns the open member that would have the lowest share with x more load.
func (l *loads) coldest(from int32, x float64) int32 {
	best := int32(None)
	for i := range l.of {
		if m := int32(i); m != from && l.open(m) && (best == None || (l.of[m]+x)/l.cap[m] < (l.of[best]+x)/l.cap[best]) {
			best = m
		}
	}
	return best
}

func (l *loads) sorted(m int32) []int32 {
	if !l.ascending[m] {
		l.ascending[m] = true
		// A range whose load is not known yet, or that this plan placed, stays.
		l.lists[m] = slices.DeleteFunc(l.lists[m], func(s int32) bool {
			x := &l.d.c.Shards[s]
			return x.Owner != m || x.ranged() && !x.told()
		})
		slices.SortFunc(l.lists[m], func(a, b int32) int { return cmp.Or(cmp.Compare(l.shard[a], l.shard[b]), cmp.Compare(a, b)) })
	}
	return l.lists[m]
}

func (l *loads) search(list []int32, load float64) (int, bool) {
	return slices.BinarySearchFunc(list, load, func(s int32, x float64) int { return cmp.Compare(l.shard[s], x) })
}

package sharding

import "math"

// LoadAware evens out the load of members, by their weights, in small steps: it
// does nothing until a member has more than High times its share, then moves
// shards from the member with the most load to the one with the least until none
// has more than Low times its share, the budget is spent, or no move helps.
// Shards that are Fixed stay. The zero value is ready for use.
type LoadAware struct {
	Rules Rules
	// High and Low are multiples of a member's share of the load. Defaults 1.2 and
	// 1.05; High at least Low, both at least 1.
	High, Low float64
	// Budget is how many shards one plan moves for balance's sake. Default: a
	// hundredth of all, at least 1. The next plan goes on if there is need.
	Budget int
}

var _ Assigner = LoadAware{}

// Plan implements Assigner.
func (a LoadAware) Plan(c *Cluster) *Plan {
	low := max(a.Low, 1)
	if a.Low == 0 {
		low = 1.05
	}
	high := max(a.High, low)
	if a.High == 0 {
		high = max(1.2, low)
	}
	left := a.Budget
	if left <= 0 {
		left = max(1, len(c.Shards)/100)
	}
	d := newDraft(c, a.Rules)
	l := newLoads(d)
	d.place(func(m int32, load float64) float64 {
		if c.Members[m].Full && len(c.Members) > 1 {
			return rarely
		}
		return (l.of[m] + l.known(load)) / l.weight[m]
	}, func(s, m int32) { l.of[m] += l.shard(s) })

	hot := false
	for m := range l.of {
		hot = hot || d.fits[m] && l.relative(m) > high
	}
	unfinished := false
	if hot {
		lists := d.owned(func(int) bool { return true })
		for ; left > 0 && l.step(lists, low); left-- {
		}
		unfinished = left == 0
	}
	p := d.plan(l.share)
	p.Unfinished = unfinished
	return p
}

// loads are what the members have, while a plan is made.
type loads struct {
	d       *draft
	of      []float64 // by member
	weight  []float64
	weights float64
	total   float64
	mean    float64 // of a shard, taken for one whose load is not known
	share   []int   // how many shards each would have at equal loads
}

func newLoads(d *draft) *loads {
	n := len(d.have)
	l := &loads{d: d, of: make([]float64, n), weight: make([]float64, n)}
	for m := range l.weight {
		if d.fits[m] {
			l.weight[m] = float64(max(d.c.Members[m].Weight, 0))
			l.weights += l.weight[m]
		}
	}
	for m := range l.weight {
		if d.fits[m] && l.weights == 0 {
			l.weight[m] = 1
		}
		// Nothing for those without capacity, but a number to divide by.
		l.weight[m] = max(l.weight[m], 1e-9)
	}
	l.weights = 0
	for m := range l.weight {
		if d.fits[m] {
			l.weights += l.weight[m]
		}
	}
	known := 0
	for s := range d.c.Shards {
		if x := d.c.Shards[s].Load; x > 0 && !math.IsInf(x, 1) {
			l.mean += x
			known++
		}
	}
	if known > 0 {
		l.mean /= float64(known)
	} else {
		l.mean = 1
	}
	l.share = shares(len(d.c.Shards), d.c.Members, d.fits, d.have)
	l.sum()
	return l
}

// known is a load, or the mean where none was told.
func (l *loads) known(load float64) float64 {
	if load > 0 && !math.IsInf(load, 1) {
		return load
	}
	return l.mean
}

func (l *loads) shard(s int32) float64 { return l.known(l.d.c.Shards[s].Load) }

func (l *loads) sum() {
	clear(l.of)
	l.total = 0
	for s, o := range l.d.owner {
		x := l.shard(int32(s))
		l.total += x
		if o != None {
			l.of[o] += x
		}
	}
}

// relative is a member's load as a multiple of its share.
func (l *loads) relative(m int) float64 {
	return l.of[m] / l.weight[m] * l.weights / l.total
}

// step makes the one move from the member with the most load that evens out best;
// false if that has little enough, or no move helps.
func (l *loads) step(lists [][]int32, low float64) bool {
	d := l.d
	from := -1
	for m := range l.of {
		if d.fits[m] && (from < 0 || l.relative(m) > l.relative(from)) {
			from = m
		}
	}
	if from < 0 || l.relative(from) <= low {
		return false
	}
	best, at, to, least := int32(None), 0, int32(None), l.of[from]/l.weight[from]
	coldest := l.coldest(from)
	for k, s := range lists[from] {
		x, m := l.shard(s), coldest
		if d.rules != nil {
			m = d.best(s, strictly, func(m int32, _ float64) float64 {
				if int(m) == from || d.c.Members[m].Full {
					return never
				}
				return (l.of[m] + x) / l.weight[m]
			})
		}
		if m == None {
			continue
		}
		// The higher of the two after the move: lower is better.
		worst := max((l.of[from]-x)/l.weight[from], (l.of[m]+x)/l.weight[m])
		if worst < least {
			best, at, to, least = s, k, m, worst
		}
	}
	if best == None {
		return false
	}
	x := l.shard(best)
	l.of[from] -= x
	l.of[to] += x
	d.pass(best, to, Loaded)
	lists[from] = append(lists[from][:at], lists[from][at+1:]...)
	return true // what was moved once is in nobody's list any more
}

// coldest is the member with the least load for its weight that may be given more.
func (l *loads) coldest(from int) int32 {
	best := int32(None)
	for m := range l.of {
		if m != from && l.d.fits[m] && !l.d.c.Members[m].Full && (best == None || l.of[m]/l.weight[m] < l.of[best]/l.weight[best]) {
			best = int32(m)
		}
	}
	return best
}

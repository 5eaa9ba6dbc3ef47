package assign

import (
	"cmp"
	"slices"

	"github.com/tenure-go/tenure/internal/keyspace"
)

// The zero Range is the whole keyspace, so a shard with the zero Range counts as ranged only if it
// has Parts.
func (s *Shard) ranged() bool { return !s.Range.Empty() && (s.Range != (Range{}) || s.Parts != nil) }

func (r Range) one() bool { return r.To-r.From == 1 }

func (s *Shard) divisible() bool { return s.ranged() && !s.Range.one() }

// The largest indivisible part of a shard's load is the hottest key's load or the whole load.
func (s *Shard) indivisible(load float64) float64 {
	if !s.divisible() {
		return load
	}
	most := 0.0
	for i := range s.Parts {
		if s.Parts[i].Range.one() {
			most = max(most, s.Parts[i].Load)
		}
	}
	return min(most, load)
}

// Within estimates the load in r, which is part of a shard's range. Within uses the shard's Parts
// or, if Parts is nil, the width of r.
func (s *Shard) Within(r Range) float64 {
	parts, load := s.Parts, 0.0
	if len(parts) == 0 {
		parts = []Part{{s.Range, s.Load}}
	}
	for i := range parts {
		// Widths are reduced by 1, because the whole keyspace has 2^64 hashes.
		p := parts[i].Range
		from, last := max(p.From, r.From), min(p.To-1, r.To-1)
		if from <= last {
			load += parts[i].Load * (float64(last-from) + 1) / (float64(p.To-1-p.From) + 1)
		}
	}
	return load
}

// wish records that a member above High has no range small enough to give away.
func (l *loads) wish(m int32, size float64) {
	// Ranges that are small enough to be merged again would be useless.
	size = max(size, l.a.SplitAbove*l.unit/4)
	for _, s := range l.lists[m] {
		if l.shard[s] <= size && l.shard[s] >= size/4 {
			return // the range will move as soon as the budget allows it
		}
	}
	l.wishes = append(l.wishes, wish{m, size})
}

func (l *loads) changeable(s int32) bool {
	x := &l.d.c.Shards[s]
	return x.ranged() && !x.Busy && x.Owner != None && l.d.owner[s] == x.Owner && x.told() && !l.d.rules.names(s)
}

type splitting struct {
	shard int32
	size  float64
}

// split divides hot ranges, and the largest range of each member that needs smaller ranges. While
// there are too few ranges, it also divides the range with the most load.
func (l *loads) split(p *Plan) {
	var list []splitting
	few, largest := l.ranges < l.a.MinShards, map[int32]int32{}
	for _, w := range l.wishes {
		largest[w.member] = None
	}
	for s := range l.shard {
		s := int32(s)
		x := &l.d.c.Shards[s]
		hot := l.shard[s] > l.a.SplitAbove*l.unit
		best, wished := largest[x.Owner]
		if !hot && !few && !wished || !x.divisible() || !l.changeable(s) {
			continue
		}
		switch {
		case hot:
			list = append(list, splitting{s, l.a.SplitAbove * l.unit / 2})
		case few:
			list = append(list, splitting{s, l.shard[s] * 0.6})
		}
		if wished && (best == None || l.shard[s] > l.shard[best]) {
			largest[x.Owner] = s
		}
	}
	for _, w := range l.wishes {
		if s := largest[w.member]; s != None && l.shard[s] > w.size {
			list = append(list, splitting{s, w.size})
		}
	}
	slices.SortFunc(list, func(a, b splitting) int {
		return cmp.Or(-cmp.Compare(l.shard[a.shard], l.shard[b.shard]), cmp.Compare(a.shard, b.shard), cmp.Compare(a.size, b.size))
	})
	l.touched = map[int32]bool{}
	for _, x := range list {
		most := min(keyspace.MaxCuts, l.a.MaxShards-l.ranges)
		if most <= 0 {
			break
		}
		spare := few && l.shard[x.shard] <= l.a.SplitAbove*l.unit
		if spare && l.ranges >= l.a.MinShards || l.touched[x.shard] {
			continue
		}
		at := l.d.c.Shards[x.shard].cuts(x.size, most)
		l.touched[x.shard] = true
		l.ranges += len(at)
		p.Splits = append(p.Splits, Split{x.shard, at})
	}
}

// These hashes divide a range into ranges whose load is at most size. Each key whose load is at
// least size gets its own range.
func (s *Shard) cuts(size float64, most int) []uint64 {
	for ; ; size *= 1.3 {
		var at []uint64
		add := func(h uint64) {
			if h > s.Range.From && s.Range.Has(h) && (len(at) == 0 || h > at[len(at)-1]) {
				at = append(at, h)
			}
		}
		sum, heaviest := 0.0, Part{Range: s.Range}
		for _, x := range s.Parts {
			hot := x.Range.one() && x.Load >= size && x.Load > 0
			if hot || sum > 0 && sum+x.Load > size {
				add(x.Range.From)
				sum = 0
			}
			if sum += x.Load; hot {
				add(x.Range.From + 1)
				sum = 0
			}
			if x.Load > heaviest.Load {
				heaviest = x
			}
		}
		if len(at) == 0 { // all load is in one part, or the distribution is unknown
			add(heaviest.Range.From + (heaviest.Range.To-1-heaviest.Range.From)/2 + 1)
		}
		if len(at) <= most {
			return at
		}
	}
}

// Each plan merges only a few cold neighboring ranges.
func (l *loads) merge(p *Plan) {
	if l.ranges <= l.a.MinShards {
		return
	}
	order := make([]int32, 0, l.ranges)
	for s := range l.shard {
		if l.d.c.Shards[s].ranged() {
			order = append(order, int32(s))
		}
	}
	shard := func(s int32) *Shard { return &l.d.c.Shards[s] }
	slices.SortFunc(order, func(a, b int32) int { return cmp.Compare(shard(a).Range.From, shard(b).Range.From) })
	left := min(max(1, len(order)/50), l.ranges-l.a.MinShards)
	for _, same := range []bool{true, false} { // first ranges of one owner, because merging them moves no load
		for i := 1; i < len(order); i++ {
			from, to := order[i-1], order[i]
			if shard(from).Range.To != shard(to).Range.From || same != (shard(from).Owner == shard(to).Owner) || !l.cold(from, to) {
				continue
			}
			if left == 0 {
				l.unfinished = true
				return
			}
			if l.shard[from] > l.shard[to] {
				from, to = to, from
			}
			if m, x := shard(to).Owner, l.shard[from]; !same {
				if l.d.c.Moved+l.moved+x > l.a.MovesPerMinute/2*l.total || l.of[m]+x > l.level(m, l.a.Low) {
					continue
				}
				l.moved += x
				l.of[m] += x
			}
			left--
			l.touched[from], l.touched[to] = true, true
			p.Merges = append(p.Merges, Merge{from, to})
		}
	}
}

// Two neighbors should merge if both have little load, or if one has almost no load and the merged
// range would be far from a split. If there are more than MaxShards ranges, neighbors should merge
// whenever the merged range would be far from a split.
func (l *loads) cold(a, b int32) bool {
	if l.touched[a] || l.touched[b] || !l.changeable(a) || !l.changeable(b) || l.d.c.Shards[a].Fixed || l.d.c.Shards[b].Fixed {
		return false
	}
	limit, x, y := l.a.SplitAbove*l.unit, l.shard[a], l.shard[b]
	return x+y <= limit/4 || x+y <= limit*3/4 && (min(x, y) <= limit/32 || l.ranges > l.a.MaxShards)
}

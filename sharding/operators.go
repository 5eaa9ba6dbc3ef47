package sharding

import (
	"maps"
	"slices"
	"time"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/core/control"
	"github.com/tenure-go/tenure/internal/keyspace"
)

// obey gives the active operators' rules to the planner. It reports whether they may change
// although the view does not.
//
// While the shard's record has the token that a rule names, a move counts as a pin, and a
// resignation as an exclusion. The token changes when the resulting plan is carried out.
func (p *planner) obey(v *core.View, now time.Time) (again bool) {
	p.Rules, p.Frozen, p.wall = Rules{}, false, now
	p.bounds, p.release = map[uint64]bool{}, map[string]bool{}
	var once []*control.Rule
	for i := range v.Rules {
		r := &v.Rules[i]
		if !r.Active(now) {
			continue
		}
		if at, _ := v.Owner(r.Shards); r.Spent(at.Token) {
			continue
		}
		again = again || !r.Expires.IsZero() && r.Kind != control.Stop && r.Kind != control.Resolve
		switch r.Kind {
		case control.Drain:
			p.Rules.Drain = append(p.Rules.Drain, r.Node)
		case control.Pin:
			p.Rules.pin(r.Shards, r.Node)
		case control.Exclude:
			p.Rules.exclude(r.Shards, r.Node)
		case control.Move, control.Resign:
			once = append(once, r)
		case control.Freeze:
			p.Frozen = true
		case control.Release:
			p.release[r.Shards] = true
		case control.Split, control.Merge:
			if h, err := keyspace.ParseHash(r.Hash); err == nil {
				p.bounds[h] = r.Kind == control.Split
			}
		case control.Stop, control.Resolve: // move nothing
		}
	}
	for _, r := range once { // after the rules that stay, which they override or narrow
		at, _ := v.Owner(r.Shards)
		switch {
		case r.Kind == control.Move:
			p.Rules.pin(r.Shards, r.Node)
		case at.Node != "":
			nodes, _ := lookUp(p.Rules.Exclude, r.Shards)
			p.Rules.exclude(r.Shards, slices.Concat(nodes, []string{at.Node})...)
		}
	}
	return again
}

// bound adds to a plan the splits and merges that operators' rules request, and removes those that
// they forbid.
func (p *planner) bound(t *assignments, plan *Plan) {
	m := t.ranged()
	if len(p.bounds) == 0 || m.Len() == 0 {
		return
	}
	used := map[int32]bool{}
	cuts := map[int32][]uint64{}
	var merges []Merge
	for _, h := range slices.Sorted(maps.Keys(p.bounds)) {
		i, _ := indexOf(t, m.ShardOf(h))
		at := int32(i)
		begins := t.ranges[i].From == h
		switch {
		case p.bounds[h] && !begins && len(cuts[at]) < keyspace.MaxCuts:
			cuts[at] = append(cuts[at], h)
			used[at] = true
		case !p.bounds[h] && begins:
			k, _ := indexOf(t, m.ShardOf(h-1))
			if below := int32(k); !used[at] && !used[below] {
				merges = append(merges, Merge{From: at, To: below})
				used[at], used[below] = true, true
			}
		}
	}
	var splits []Split
	for _, at := range slices.Sorted(maps.Keys(cuts)) {
		splits = append(splits, Split{at, cuts[at]})
	}
	for _, s := range plan.Splits {
		s.At = slices.DeleteFunc(slices.Clone(s.At), func(h uint64) bool { is, ruled := p.bounds[h]; return ruled && !is })
		if len(s.At) > 0 && !used[s.Shard] {
			splits = append(splits, s)
		}
	}
	for _, m := range plan.Merges {
		at := max(t.ranges[m.From].From, t.ranges[m.To].From)
		if !p.bounds[at] && !used[m.From] && !used[m.To] {
			merges = append(merges, m)
		}
	}
	plan.Splits, plan.Merges = splits, merges
}

func (r *Rules) pin(shards, node string) {
	if r.Pin == nil {
		r.Pin = map[string]string{}
	}
	r.Pin[shards] = node
}

func (r *Rules) exclude(shards string, nodes ...string) {
	if r.Exclude == nil {
		r.Exclude = map[string][]string{}
	}
	r.Exclude[shards] = append(r.Exclude[shards], nodes...)
}

// with returns r and o together. If both pin a shard, o's pin applies.
func (r Rules) with(o Rules) Rules {
	r.Drain = slices.Concat(r.Drain, o.Drain)
	r.Pin, r.Prefer = first(o.Pin, r.Pin), first(o.Prefer, r.Prefer)
	if len(o.Exclude) > 0 {
		exclude := maps.Clone(r.Exclude)
		if exclude == nil {
			exclude = map[string][]string{}
		}
		for p, nodes := range o.Exclude {
			more, _ := lookUp(r.Exclude, p)
			exclude[p] = slices.Concat(more, nodes)
		}
		r.Exclude = exclude
	}
	return r
}

// first returns the entries of a, and the entries of b for shards without an entry in a.
func first(a, b map[string]string) map[string]string {
	if len(a) == 0 {
		return b
	}
	out := maps.Clone(a)
	for p, x := range b {
		if _, has := lookUp(a, p); !has {
			out[p] = x
		}
	}
	return out
}

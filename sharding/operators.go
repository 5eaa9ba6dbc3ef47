package sharding

import (
	"maps"
	"slices"
	"time"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/core/control"
	"github.com/tenure-go/tenure/internal/keyspace"
	"github.com/tenure-go/tenure/sharding/assign"
)

// obey passes the operators' active rules to the planner, and reports whether the rules may change
// even if the view does not change.
//
// A rule may contain a token. While the shard's record has that token, a rule that moves the shard
// pins it. A rule that resigns the lease excludes the owner's node. Once members have carried out
// the resulting plan, the record has a different token.
func (p *planner) obey(v *core.View, now time.Time) (again bool) {
	p.Rules, p.Frozen, p.wall = assign.Rules{}, false, now
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
			pin(&p.Rules, r.Shards, r.Node)
		case control.Exclude:
			exclude(&p.Rules, r.Shards, r.Node)
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
		case control.Stop, control.Resolve: // these rules move nothing
		}
	}
	for _, r := range once { // applied after the permanent rules, and overrides or narrows them
		at, _ := v.Owner(r.Shards)
		switch {
		case r.Kind == control.Move:
			pin(&p.Rules, r.Shards, r.Node)
		case at.Node != "":
			nodes, _ := keyspace.LookUp(p.Rules.Exclude, r.Shards)
			exclude(&p.Rules, r.Shards, slices.Concat(nodes, []string{at.Node})...)
		}
	}
	return again
}

// bound adds the splits and merges that operators' rules request to a plan, and removes those that
// the rules forbid.
func (p *planner) bound(t *assignments, plan *assign.Plan) {
	m := t.ranged()
	if len(p.bounds) == 0 || m.Len() == 0 {
		return
	}
	used := map[int32]bool{}
	cuts := map[int32][]uint64{}
	var merges []assign.Merge
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
				merges = append(merges, assign.Merge{From: at, To: below})
				used[at], used[below] = true, true
			}
		}
	}
	var splits []assign.Split
	for _, at := range slices.Sorted(maps.Keys(cuts)) {
		splits = append(splits, assign.Split{Shard: at, At: cuts[at]})
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

func pin(r *assign.Rules, shards, node string) {
	if r.Pin == nil {
		r.Pin = map[string]string{}
	}
	r.Pin[shards] = node
}

func exclude(r *assign.Rules, shards string, nodes ...string) {
	if r.Exclude == nil {
		r.Exclude = map[string][]string{}
	}
	r.Exclude[shards] = append(r.Exclude[shards], nodes...)
}

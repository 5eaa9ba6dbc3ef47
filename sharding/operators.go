package sharding

import (
	"maps"
	"slices"
	"time"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/core/control"
)

// obey gives the operators' rules that are in force to the planner. It reports whether that
// may change although the view does not.
//
// A move is a pin, and a resignation an exclusion, for as long as the shard's record has the
// token that the rule names: until the plan that it led to was carried out.
func (p *planner) obey(v *core.View, now time.Time) (again bool) {
	p.Rules, p.Frozen = Rules{}, false
	var once []*control.Rule
	for i := range v.Rules {
		r := &v.Rules[i]
		if !r.Active(now) {
			continue
		}
		if at, _ := v.Owner(r.Shards); r.Spent(at.Token) {
			continue
		}
		again = again || !r.Expires.IsZero()
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

// with are the rules and the operators', which come first where both pin a shard.
func (r Rules) with(o Rules) Rules {
	r.Drain = slices.Concat(r.Drain, o.Drain)
	if len(o.Pin) > 0 {
		pin := maps.Clone(o.Pin)
		for p, node := range r.Pin {
			if _, has := lookUp(o.Pin, p); !has {
				pin[p] = node
			}
		}
		r.Pin = pin
	}
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

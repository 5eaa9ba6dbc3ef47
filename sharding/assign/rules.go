package assign

import (
	"cmp"
	"iter"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/internal/keyspace"
)

// Rules restrict ownership, and take precedence over balance. Like plans, rules are advice. Until a
// plan is carried out, and while there is no assigner, a member may own a shard although a rule
// forbids it. If the rules exclude every living member from a shard, the rules do not apply to that
// shard, because no shard is left without an owner (W1).
//
// A rule identifies shards by their exact names, or by a prefix that ends in "*".
type Rules struct {
	Drain   []string            `json:"drain,omitempty" yaml:"drain,omitempty"`     // nodes that must own nothing
	Pin     map[string]string   `json:"pin,omitempty" yaml:"pin,omitempty"`         // shards to the node that must own them while it lives
	Exclude map[string][]string `json:"exclude,omitempty" yaml:"exclude,omitempty"` // shards to nodes that must not own them
	// Spread, if not empty, is a separator such as ".". Shards whose names agree up to the last
	// separator form a group. Each group is spread evenly over the members' zones.
	Spread string `json:"spread,omitempty" yaml:"spread,omitempty"`
	// Prefer maps shards to their preferred zones. A zone gets these shards up to its members'
	// shares. If its members' capacities, without the reserve, are known and larger, the zone gets
	// the shards up to these capacities. Other shards leave the zone to make room. Plan.Elsewhere
	// lists the shards that are in a different zone.
	Prefer map[string]string `json:"prefer,omitempty" yaml:"prefer,omitempty"`
}

func (r Rules) check() error {
	for name, shards := range map[string]iter.Seq[string]{"Pin": maps.Keys(r.Pin), "Exclude": maps.Keys(r.Exclude), "Prefer": maps.Keys(r.Prefer)} {
		for shard := range shards {
			if prefix := strings.TrimSuffix(shard, "*"); prefix != "" && core.CheckShard(prefix) != nil || shard == "" {
				return invalid("Balance.Rules.%s names %.60q: use the name of a shard, or a prefix and *", name, shard)
			}
		}
	}
	return nil
}

// If r and o pin the same shard, o's pin applies.
func (r Rules) with(o Rules) Rules {
	r.Drain = slices.Concat(r.Drain, o.Drain)
	r.Pin, r.Prefer = first(o.Pin, r.Pin), first(o.Prefer, r.Prefer)
	if len(o.Exclude) > 0 {
		exclude := maps.Clone(r.Exclude)
		if exclude == nil {
			exclude = map[string][]string{}
		}
		for p, nodes := range o.Exclude {
			more, _ := keyspace.LookUp(r.Exclude, p)
			exclude[p] = slices.Concat(more, nodes)
		}
		r.Exclude = exclude
	}
	return r
}

func first(a, b map[string]string) map[string]string {
	if len(a) == 0 {
		return b
	}
	out := maps.Clone(a)
	for p, x := range b {
		if _, has := keyspace.LookUp(a, p); !has {
			out[p] = x
		}
	}
	return out
}

// A nil compiled has no rules.
type compiled struct {
	d       *draft
	pin     map[int32]string   // only to nodes that are alive and may own shards
	exclude map[int32][]string // only if another node is left
	group   []int32            // by shard, None for a shard without a group; nil without Spread
	zone    []int32            // by member
	most    []int32            // by group: shards in one zone
	in      []int32            // by group and zone
	zones   int32
	prefer  []string // by shard: a zone, or empty; nil without Prefer
	granted []bool   // by shard: the preference is respected
}

func (r Rules) compile(d *draft) *compiled {
	if len(r.Pin) == 0 && len(r.Exclude) == 0 && len(r.Prefer) == 0 && r.Spread == "" {
		return nil
	}
	k := &compiled{d: d, pin: map[int32]string{}, exclude: map[int32][]string{}}
	if len(r.Prefer) > 0 {
		k.prefer, k.granted = make([]string, len(d.c.Shards)), make([]bool, len(d.c.Shards))
	}
	live := map[string]bool{}
	for i := range d.c.Members {
		if d.fits[i] {
			live[d.c.Members[i].Node] = true
		}
	}
	for s := range d.c.Shards {
		name := d.c.Shards[s].Name
		if node, ok := keyspace.LookUp(r.Pin, name); ok && live[node] {
			k.pin[int32(s)] = node
		}
		if k.prefer != nil {
			k.prefer[s], _ = keyspace.LookUp(r.Prefer, name)
		}
		if nodes, ok := keyspace.LookUp(r.Exclude, name); ok {
			for n := range live {
				if !slices.Contains(nodes, n) {
					k.exclude[int32(s)] = nodes
					break
				}
			}
		}
	}
	if r.Spread != "" {
		k.spread(r.Spread)
	}
	return k
}

func (k *compiled) spread(separator string) {
	zones, groups := map[string]int32{}, map[string]int32{}
	for i := range k.d.c.Members {
		z := k.d.c.Members[i].Zone
		if _, ok := zones[z]; !ok && k.d.fits[i] {
			zones[z] = int32(len(zones))
		}
		k.zone = append(k.zone, zones[z])
	}
	k.zones = int32(max(len(zones), 1))
	k.group = make([]int32, len(k.d.c.Shards))
	for s := range k.group {
		k.group[s] = None
		name := k.d.c.Shards[s].Name
		at := strings.LastIndex(name, separator)
		if at < 0 {
			continue
		}
		g, ok := groups[name[:at]]
		if !ok {
			g = int32(len(groups))
			groups[name[:at]] = g
			k.most = append(k.most, 0)
		}
		k.group[s] = g
		k.most[g]++
	}
	for g := range k.most {
		k.most[g] = (k.most[g] + k.zones - 1) / k.zones
	}
	k.in = make([]int32, len(k.most)*int(k.zones))
}

func (k *compiled) count(s, m, by int32) {
	if k != nil && k.group != nil && k.group[s] != None {
		k.in[k.group[s]*k.zones+k.zone[m]] += by
	}
}

func (k *compiled) gave(s, m int32) { k.count(s, m, 1) }
func (k *compiled) took(s, m int32) { k.count(s, m, -1) }

// If a group has too many shards in one zone, expel removes those that arrived last.
func (k *compiled) expel(d *draft) {
	if k == nil {
		return
	}
	order := make([]int32, 0, len(d.owner))
	for s := range d.owner {
		if d.owner[s] != None {
			order = append(order, int32(s))
		}
	}
	slices.SortStableFunc(order, func(a, b int32) int { return cmp.Compare(d.c.Shards[a].Moved, d.c.Shards[b].Moved) })
	for _, s := range order {
		if m := d.owner[s]; d.c.Frozen || k.allows(s, m, strictly) {
			k.gave(s, m)
		} else {
			d.release(s, Ruled)
		}
	}
}

const (
	strictly = iota
	notThere // without Prefer
	anyZone  // without Prefer and Spread
	anyhow   // without any rule
)

func (k *compiled) allows(s, m int32, how int) bool {
	if k == nil || how == anyhow {
		return true
	}
	node := k.d.c.Members[m].Node
	if pin, ok := k.pin[s]; ok && node != pin {
		return false
	}
	if _, ok := k.pin[s]; !ok && slices.Contains(k.exclude[s], node) {
		return false
	}
	if how == strictly && k.bound(s) && k.d.c.Members[m].Zone != k.prefer[s] {
		return false
	}
	if how == anyZone || k.group == nil || k.group[s] == None {
		return true
	}
	g := k.group[s]
	return k.in[g*k.zones+k.zone[m]] < k.most[g]
}

// These are the costs of a member that is a last resort and of a member that may not own the shard.
const (
	rarely = math.MaxFloat64 / 2
	never  = math.MaxFloat64
)

func (k *compiled) bound(s int32) bool { return k.prefer != nil && k.granted[s] }

// A shard that a rule names exactly is neither split nor merged, because the rule would not apply
// to the resulting shards.
func (k *compiled) names(s int32) bool {
	return k != nil && (k.pin[s] != "" || k.exclude[s] != nil)
}

// grant decides which preferences for zones are respected, within the available room. Shards that
// are already in their preferred zone come first. They may take up a little more room than others,
// so that shards do not move back and forth.
func (d *draft) grant(size func(s int32) float64, room func(m int32) float64, more float64) {
	k := d.rules
	if k == nil || k.prefer == nil || d.c.Frozen {
		return
	}
	left, extra := map[string]float64{}, map[string]float64{}
	for i := range d.c.Members {
		if m := &d.c.Members[i]; d.fits[i] && !m.Full {
			left[m.Zone] += room(int32(i)) * (1 + more)
			extra[m.Zone] += room(int32(i)) * more
		}
	}
	for _, there := range []bool{true, false} {
		for s, z := range k.prefer {
			o := d.owner[s]
			if z == "" || there != (o != None && d.c.Members[o].Zone == z) || k.pin[int32(s)] != "" {
				continue
			}
			x := size(int32(s))
			switch {
			case there && d.c.Members[o].Full:
				k.granted[s] = true
			case left[z] < x || !there && (left[z]-extra[z] < x || o != None && d.c.Shards[s].held()):
			default:
				k.granted[s] = true
				left[z] -= x
				if !there && o != None {
					k.took(int32(s), o)
					d.release(int32(s), Ruled)
				}
			}
		}
	}
}

func (s *Shard) held() bool { return s.Fixed || s.Busy }

// best returns the member that may own a shard at the lowest cost, or None. If costs are equal,
// rendezvous order decides.
func (d *draft) best(s int32, how int, cost func(s, m int32) float64) int32 {
	h := keyspace.FNV(d.c.Shards[s].Name)
	best, least := int32(None), never
	for i := range d.c.Members {
		m := int32(i)
		if !d.fits[m] || !d.rules.allows(s, m, how) {
			continue
		}
		if c := cost(s, m); c < least || c == least && best != None && d.before(h, m, best) {
			best, least = m, c
		}
	}
	return best
}

// place gives each shard in the pool to the member with the lowest cost that the rules allow, and
// calls given. Shards with the fewest possible owners come first.
func (d *draft) place(cost func(s, m int32) float64, given func(s, m int32)) {
	choice := func(s int32) int {
		switch {
		case d.rules == nil:
			return 4
		case d.rules.pin[s] != "":
			return 0
		case d.rules.exclude[s] != nil:
			return 1
		case d.rules.group != nil && d.rules.group[s] != None:
			return 2
		case d.rules.bound(s):
			return 3
		}
		return 4
	}
	slices.SortFunc(d.pool, func(a, b int32) int {
		return cmp.Or(cmp.Compare(choice(a), choice(b)), -cmp.Compare(d.c.Shards[a].Load, d.c.Shards[b].Load), cmp.Compare(a, b))
	})
	for _, s := range d.pool {
		for how := strictly; how <= anyhow; how++ {
			if m := d.best(s, how, cost); m != None {
				d.give(s, m)
				given(s, m)
				break
			}
		}
	}
	d.pool = d.pool[:0]
}

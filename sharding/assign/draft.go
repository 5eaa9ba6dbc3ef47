package assign

import (
	"cmp"
	"slices"

	"github.com/tenure-go/tenure/internal/keyspace"
)

// A draft is an unfinished plan.
type draft struct {
	c     *Cluster
	rules *compiled // nil: no rules
	fits  []bool    // by member: whether it may own any shard
	owner []int32
	why   []Reason // by shard that moves
	have  []int    // by member
	had   []int    // by member, before this plan
	pool  []int32  // shards without an owner for now
	nodes []uint64 // hash, by member
}

func newDraft(c *Cluster, r Rules) *draft {
	r = r.with(c.Rules)
	d := &draft{
		c: c, fits: make([]bool, len(c.Members)), owner: make([]int32, len(c.Shards)),
		why: make([]Reason, len(c.Shards)), have: make([]int, len(c.Members)), had: make([]int, len(c.Members)), nodes: make([]uint64, len(c.Members)),
	}
	some := false
	for i := range c.Members {
		m := &c.Members[i]
		d.fits[i] = !m.Drain && !slices.Contains(r.Drain, m.Node)
		some = some || d.fits[i]
		d.nodes[i] = keyspace.FNV(m.Node)
	}
	if !some { // otherwise, draining would leave shards without an owner
		for i := range d.fits {
			d.fits[i] = true
		}
	}
	d.rules = r.compile(d)
	for s := range c.Shards {
		d.owner[s] = c.Shards[s].Owner
		if o := d.owner[s]; o >= 0 && int(o) < len(d.fits) {
			d.have[o]++
			d.had[o]++
			if !d.fits[o] && (!c.Frozen || c.Members[o].Drain) {
				why := Drained
				if c.Members[o].Ineligible != "" {
					why = Barred
				}
				d.release(int32(s), why)
			}
			continue
		}
		d.owner[s] = None
		d.release(int32(s), Orphaned)
	}
	d.rules.expel(d)
	return d
}

func (d *draft) release(s int32, why Reason) {
	if o := d.owner[s]; o != None {
		d.have[o]--
	}
	d.owner[s] = None
	if d.why[s] == 0 {
		d.why[s] = why
	}
	d.pool = append(d.pool, s)
}

func (d *draft) give(s, m int32) {
	d.owner[s] = m
	d.have[m]++
	d.rules.gave(s, m)
}

func (d *draft) pass(s, to int32, why Reason) {
	d.rules.took(s, d.owner[s])
	d.have[d.owner[s]]--
	if d.why[s] == 0 {
		d.why[s] = why
	}
	d.give(s, to)
}

func (d *draft) before(shard uint64, a, b int32) bool {
	x, y := keyspace.Rank(shard, d.nodes[a]), keyspace.Rank(shard, d.nodes[b])
	return x > y || x == y && d.c.Members[a].ID < d.c.Members[b].ID
}

// fill gives each shard in the pool to a member that is below its share, in rendezvous order.
func (d *draft) fill(share []int) {
	var open []int32
	for m := range share {
		if d.fits[m] && d.have[m] < share[m] {
			open = append(open, int32(m))
		}
	}
	slices.Sort(d.pool)
	for _, s := range d.pool {
		h := keyspace.FNV(d.c.Shards[s].Name)
		best, score := -1, uint64(0)
		for k, m := range open {
			x := keyspace.Rank(h, d.nodes[m])
			if best < 0 || x > score || x == score && d.before(h, m, open[best]) {
				best, score = k, x
			}
		}
		if best < 0 {
			break // no member can own any shard
		}
		m := open[best]
		d.give(s, m)
		if d.have[m] >= share[m] {
			open[best] = open[len(open)-1]
			open = open[:len(open)-1]
		}
	}
	d.pool = d.pool[:0]
}

// These shards may be moved to balance the members.
func (d *draft) owned(only func(m int) bool) [][]int32 {
	lists := make([][]int32, len(d.have))
	for m := range lists {
		if only(m) {
			lists[m] = make([]int32, 0, d.have[m])
		}
	}
	for s, o := range d.owner {
		if o != None && lists[o] != nil && !d.c.Shards[s].held() && !d.c.Frozen {
			lists[o] = append(lists[o], int32(s))
		}
	}
	return lists
}

// An owner first gives up the latest arrivals, and then scattered shards. Every member selects the
// same scattered shards. Therefore, a member that restarts gets back the shards that it lost when
// it left, and no shard moves twice because of one restart.
func (d *draft) latest(list []int32, k, owner int) []int32 {
	if k >= len(list) {
		k = len(list)
	}
	type candidate struct {
		moved int64
		score uint64
		s     int32
	}
	order := func(a, b candidate) int {
		return cmp.Or(cmp.Compare(b.moved, a.moved), cmp.Compare(a.score, b.score), cmp.Compare(a.s, b.s))
	}
	// Usually, the caller wants a few of many shards, and a single comparison rejects most of them.
	const few = 64
	keep := k + 1
	if k > few {
		keep = len(list)
	}
	kept := make([]candidate, 0, keep)
	for _, s := range list {
		shard := &d.c.Shards[s]
		if k <= few && len(kept) == k && (k == 0 || shard.Moved < kept[k-1].moved) {
			continue
		}
		x := candidate{shard.Moved, keyspace.Rank(uint64(s), d.nodes[owner]), s}
		if k > few {
			kept = append(kept, x)
			continue
		}
		if len(kept) == k && order(x, kept[k-1]) > 0 {
			continue
		}
		at, _ := slices.BinarySearchFunc(kept, x, order)
		kept = slices.Insert(kept, at, x)
		kept = kept[:min(len(kept), k)]
	}
	if k > few {
		slices.SortFunc(kept, order)
	}
	out := make([]int32, k)
	for i := range out {
		out[i] = kept[i].s
	}
	return out
}

func (d *draft) plan(share []int) *Plan {
	p := &Plan{Owner: d.owner, Share: share}
	for s, o := range d.owner {
		if from := d.c.Shards[s].Owner; o != from {
			p.Moves = append(p.Moves, Move{Shard: int32(s), From: from, To: o, Why: d.why[s]})
		}
		if o != None && d.rules != nil && d.rules.prefer != nil {
			if z := d.rules.prefer[s]; z != "" && d.c.Members[o].Zone != z {
				p.Elsewhere = append(p.Elsewhere, int32(s))
			}
		}
	}
	return p
}

// weights returns the weight of each member that fits, or 1 for each if they have no weights. It
// also returns the total, and reports whether any of these members takes shards.
func weights(members []Member, fits []bool) (weight []int64, total int64, open bool) {
	weight = make([]int64, len(members))
	for i := range members {
		if fits[i] {
			weight[i] = int64(max(members[i].Weight, 0))
			total += weight[i]
			open = open || !members[i].Full
		}
	}
	for i := range members {
		if fits[i] && total == 0 {
			weight[i] = 1
		}
	}
	if total == 0 {
		for _, w := range weight {
			total += w
		}
	}
	return weight, total, open
}

// shares returns each member's weighted share of n shards, rounded down or up. Shares are rounded
// up for members that already own more than the lower number, so that the fewest shards move.
func shares(n int, members []Member, fits []bool, have []int) []int {
	weight, total, open := weights(members, fits)
	full := make([]bool, len(members))
	share := make([]int, len(members))
	if total == 0 {
		return share
	}
	// If a member takes no shards and has less than its rounded-down share, it keeps its shards.
	// The other members share the rest, which may put another such member below its share.
	for again := open; again; {
		again = false
		for i := range members {
			if !members[i].Full || full[i] || weight[i] == 0 || total == weight[i] {
				continue
			}
			if have[i] < int(int64(n)*weight[i]/total) {
				full[i], share[i] = true, have[i]
				n, total, weight[i] = n-have[i], total-weight[i], 0
				again = true
			}
		}
	}
	rest, first := n, make([]int, 0, len(members))
	for i := range members {
		if full[i] || weight[i] == 0 {
			continue
		}
		share[i] = int(int64(n) * weight[i] / total)
		rest -= share[i]
		if int64(n)*weight[i]%total != 0 {
			first = append(first, i)
		}
	}
	slices.SortStableFunc(first, func(a, b int) int {
		over := func(i int) int {
			switch {
			case have[i] > share[i]:
				return 0
			case !members[i].Full:
				return 1
			}
			return 2
		}
		return cmp.Or(cmp.Compare(over(a), over(b)),
			-cmp.Compare(int64(n)*weight[a]%total, int64(n)*weight[b]%total), cmp.Compare(members[a].ID, members[b].ID))
	})
	for _, i := range first[:rest] {
		share[i]++
	}
	return share
}

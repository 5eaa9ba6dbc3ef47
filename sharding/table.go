package sharding

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/internal/keyspace"
	"github.com/tenure-go/tenure/sharding/assign"
)

// The current table is the sum of the plans in the assigner's log. A table is immutable. Each plan
// produces a new table. The zero value is the table before the first plan.
type assignments struct {
	number  int64 // number of the last plan
	specs   []string
	fixed   []string        // the shards of specs, sorted
	keys    Keyspace        // if it has no name, there is no keyspace
	next    int             // number that the keyspace's next new shard gets
	names   []string        // sorted; all slices by shard have this order
	ranges  []assign.Range  // ranges by shard; empty if there is no keyspace
	members []assign.Member // sorted by ID
	owner   []int32         // for each shard, an index in members, or None
	moved   []int64         // for each shard, the number of the plan that moved it
	why     []assign.Reason
	// The incomplete splits and merges are in the order of their plans. A shard takes part in at
	// most one change.
	changes []rangeChange
	// The suspects are shards whose owners died, by name. The values are never modified.
	suspects map[string]*suspicion

	byRange *Map // shared by tables with the same ranges; nil without a keyspace
}

// rangeChange is a split or merge, in which a shard gives ranges to others. The table contains the
// ranges that result from the change. If there are no Gifts, the shard takes back ranges that
// others refused.
type rangeChange struct {
	Number int64 // number of the plan
	From   string
	Rest   assign.Range // the range that From keeps; empty for a merge, after which From ends
	Gifts  []gift
	Why    string // why another shard refused the ranges, if there are no Gifts; at most maxRefused bytes
}

type gift struct {
	Shard string       `json:"shard"`
	Range assign.Range `json:"range"`
}

// Assignment is a shard's assigned owner, with the plan and the reason.
type Assignment struct {
	Shard string
	Owner assign.Member // zero if no member should own it
	Plan  int64
	Why   assign.Reason // zero if the decision is older than the first table that was read
}

func (t *assignments) at(i int) Assignment {
	a := Assignment{Shard: t.names[i], Plan: t.moved[i], Why: t.why[i]}
	if o := t.owner[i]; o != assign.None {
		a.Owner = t.members[o]
	}
	return a
}

// If the i-th shard has no assigned owner, session returns "".
func (t *assignments) session(i int) core.SessionID {
	if o := t.owner[i]; o != assign.None {
		return t.members[o].ID
	}
	return ""
}

func (t *assignments) has(shard string) bool {
	_, ok := indexOf(t, shard)
	return ok
}

func (t *assignments) change(shard string) *rangeChange {
	for i := range t.changes {
		c := &t.changes[i]
		if c.From == shard || c.gift(shard) != nil {
			return c
		}
	}
	return nil
}

func (t *assignments) busy() map[string]bool {
	out := map[string]bool{}
	for i := range t.changes {
		out[t.changes[i].From] = true
		for _, g := range t.changes[i].Gifts {
			out[g.Shard] = true
		}
	}
	return out
}

func (c *rangeChange) gift(shard string) *gift {
	for i := range c.Gifts {
		if c.Gifts[i].Shard == shard {
			return &c.Gifts[i]
		}
	}
	return nil
}

// This is the range that a shard has until it has noted the change. The range is empty if the
// change creates the shard.
func (c *rangeChange) before(shard string, after assign.Range) assign.Range {
	if shard == c.From {
		for _, g := range c.Gifts {
			after = join(after, g.Range)
		}
		return after
	}
	g := c.gift(shard)
	switch {
	case g.Range == after:
		return empty
	case g.Range.From == after.From:
		return assign.Range{From: g.Range.To, To: after.To}
	}
	return assign.Range{From: after.From, To: g.Range.From}
}

// The joined ranges must be neighbors, or one of them must be empty.
func join(a, b assign.Range) assign.Range {
	switch {
	case a.Empty():
		return b
	case b.Empty():
		return a
	case a.To == b.From && a.To != 0:
		return assign.Range{From: a.From, To: b.To}
	}
	return assign.Range{From: b.From, To: a.To}
}

func named(gifts []gift) []string {
	out := make([]string, len(gifts))
	for i := range gifts {
		out[i] = gifts[i].Shard
	}
	return out
}

// planChange is one plan in the log: the difference between a table and its predecessor. A base is
// the difference from a table that contains only the shards of Specs, without members and owners.
type planChange struct {
	Number int64
	Base   bool
	form   byte // the form in which the plan is written; 0 is the first form
	// The set of shards is present only in a base.
	Specs   []string
	Keys    Keyspace
	Next    int
	Changes []rangeChange   // all incomplete splits and merges
	Left    []int32         // members that left, by their indexes in the previous table
	Members []assign.Member // members that joined or changed, sorted by ID
	Rows    []row           // shards that changed, sorted
}

// A row is everything that a table says about one shard.
type row struct {
	Shard int // an index in the fixed shards; greater numbers are the keyspace's shards, from its number 0
	// In the log, a range has no end, because it ends where the next one begins. If a shard of the
	// keyspace has no range, and no merge is in progress that ends the shard, then it has ended.
	Range     assign.Range
	Owner     int32 // an index in the new table's members, or None
	Plan      int64 // the plan that moved the shard
	Why       assign.Reason
	Suspicion *suspicion
}

func (t *assignments) row(i int) row {
	return row{Range: t.ranges[i], Owner: t.owner[i], Plan: t.moved[i], Why: t.why[i], Suspicion: t.suspects[t.names[i]]}
}

func (r row) same(x row) bool {
	s := r.Suspicion.same(x.Suspicion)
	r.Suspicion, x.Suspicion = nil, nil
	return s && r == x
}

// since returns the plan that leads from an older table to t. If the set of shards changed, or if
// the older table is the zero value, the plan is a base.
func (t *assignments) since(old *assignments) *planChange {
	c := &planChange{Number: t.number, Next: t.next, Changes: t.changes}
	if old.names == nil || !slices.Equal(old.specs, t.specs) || !old.keys.same(t.keys) {
		c.Base, c.Specs, c.Keys, old = true, t.specs, t.keys, &assignments{}
		old.add(empty, t.fixed...)
	}
	for i, m := range old.members {
		if _, stays := memberOf(t.members, m.ID); !stays {
			c.Left = append(c.Left, int32(i))
		}
	}
	for _, m := range t.members {
		if i, stays := memberOf(old.members, m.ID); !stays || old.members[i] != m {
			c.Members = append(c.Members, m)
		}
	}
	was := old.copy()
	was.seat(t.members)
	add := func(name string, r row) {
		r.Shard = t.id(name)
		c.Rows = append(c.Rows, r)
	}
	for i, name := range was.names {
		if _, stays := t.near(i, name); !stays {
			add(name, row{Range: empty, Owner: assign.None})
		}
	}
	for i, name := range t.names {
		if k, has := was.near(i, name); !has || !was.row(k).same(t.row(i)) {
			add(name, t.row(i))
		}
	}
	slices.SortFunc(c.Rows, func(a, b row) int { return cmp.Compare(a.Shard, b.Shard) })
	return c
}

func memberOf(members []assign.Member, id core.SessionID) (int, bool) {
	return slices.BinarySearchFunc(members, id, func(m assign.Member, id core.SessionID) int { return cmp.Compare(m.ID, id) })
}

// near returns indexOf of a shard that is probably the i-th.
func (t *assignments) near(i int, name string) (int, bool) {
	if i < len(t.names) && t.names[i] == name {
		return i, true
	}
	return indexOf(t, name)
}

// id returns a row's number for a shard.
func (t *assignments) id(name string) int {
	if i, fixed := slices.BinarySearch(t.fixed, name); fixed {
		return i
	}
	k, _ := t.keys.index(name)
	return len(t.fixed) + k
}

// If the change does not fit the table, apply returns an error. A change fails to fit only if the
// log was tampered with or truncated. A valid base always fits.
func (t *assignments) apply(c *planChange) (*assignments, error) {
	if c.Base {
		var err error
		if t, err = unassigned(c.Specs, c.Keys); err != nil {
			return nil, err
		}
	} else if c.Number != t.number+1 || t.names == nil {
		return nil, fmt.Errorf("sharding: plan %d does not follow plan %d", c.Number, t.number)
	}
	next := t.copy()
	next.number, next.next, next.changes = c.Number, c.Next, c.Changes
	replaced := map[core.SessionID]bool{}
	for _, i := range c.Left {
		if i < 0 || int(i) >= len(t.members) {
			return nil, fmt.Errorf("sharding: plan %d removes member %d of %d", c.Number, i, len(t.members))
		}
		replaced[t.members[i].ID] = true
	}
	for _, m := range c.Members {
		replaced[m.ID] = true
	}
	members := slices.DeleteFunc(slices.Clone(t.members), func(m assign.Member) bool { return replaced[m.ID] })
	if members = append(members, c.Members...); len(members) > maxMembers {
		return nil, fmt.Errorf("sharding: plan %d has %d members", c.Number, len(members))
	}
	slices.SortFunc(members, func(a, b assign.Member) int { return cmp.Compare(a.ID, b.ID) })
	next.seat(members)
	if err := next.fill(t, c); err != nil {
		return nil, err
	}
	for _, x := range c.Changes {
		for _, shard := range append([]string{x.From}, named(x.Gifts)...) {
			if !next.has(shard) {
				return nil, fmt.Errorf("sharding: plan %d changes the range of shard %.60q, which it does not have", c.Number, shard)
			}
		}
	}
	return next, nil
}

// fill replaces the rows of t, which is a copy of the table old, by a plan's rows.
func (t *assignments) fill(old *assignments, c *planChange) error {
	ending, gone, divides := map[string]bool{}, map[int32]bool{}, c.Base
	for _, x := range c.Changes {
		ending[x.From] = x.Rest.Empty()
	}
	for _, r := range c.Rows {
		k := r.Shard - len(t.fixed)
		if r.Shard < 0 || k >= c.Next || k >= 0 && t.keys.Name == "" || c.Next > maxNumbers ||
			r.Owner < assign.None || int(r.Owner) >= len(t.members) {
			return fmt.Errorf("sharding: plan %d gives shard %d of %d to member %d of %d", c.Number, r.Shard, len(t.fixed)+c.Next, r.Owner, len(t.members))
		}
		if k < 0 {
			r.Range = empty
		}
		name := t.name(r.Shard)
		i, has := indexOf(old, name)
		if !has {
			i = len(t.names)
			t.add(empty, name)
		}
		if k >= 0 && r.Range.Empty() && !ending[name] {
			r.Suspicion, gone[int32(i)] = nil, true
		}
		if was := t.ranges[i]; was.From != r.Range.From || was.Empty() != r.Range.Empty() || gone[int32(i)] {
			t.ranges[i], divides = r.Range, true
		}
		t.owner[i], t.moved[i], t.why[i] = r.Owner, r.Plan, r.Why
		if delete(t.suspects, name); r.Suspicion != nil {
			t.suspects[name] = r.Suspicion
		}
	}
	if !divides {
		return nil
	}
	return t.arrange(gone)
}

// arrange sorts the shards, without those that ended, and ends each range where the next one
// begins.
func (t *assignments) arrange(gone map[int32]bool) error {
	t.sort(gone)
	n := len(t.names)
	if n == 0 || n > keyspace.MaxShards {
		return fmt.Errorf("sharding: plan %d has %d shards", t.number, n)
	}
	if t.keys.Name == "" {
		return nil
	}
	m := newMap(t.number, t.keys, t.names, t.ranges)
	if m.Len() == 0 || m.from[0] != 0 || len(slices.Compact(slices.Clone(m.from))) < m.Len() {
		return fmt.Errorf("sharding: plan %d has ranges that do not divide the hashes", t.number)
	}
	for shard, r := range m.All() {
		i, _ := indexOf(t, shard)
		t.ranges[i] = r
	}
	t.byRange = m
	return nil
}

// The next table is made from a copy.
func (t *assignments) copy() *assignments {
	next := *t
	next.names, next.ranges, next.owner, next.moved, next.why = slices.Clip(t.names), slices.Clone(t.ranges), slices.Clone(t.owner),
		slices.Clone(t.moved), slices.Clone(t.why)
	next.changes, next.suspects = slices.Clone(t.changes), map[string]*suspicion{}
	maps.Copy(next.suspects, t.suspects)
	return &next
}

// seat replaces the members. The shards of the members that left have no owner.
func (t *assignments) seat(members []assign.Member) {
	to := make([]int32, len(t.members))
	for i, m := range t.members {
		k, stays := memberOf(members, m.ID)
		if to[i] = int32(k); !stays {
			to[i] = assign.None
		}
	}
	for i, o := range t.owner {
		if o != assign.None {
			t.owner[i] = to[o]
		}
	}
	t.members = members
}

// name returns the shard of a row.
func (t *assignments) name(id int) string {
	if id < len(t.fixed) {
		return t.fixed[id]
	}
	return t.keys.shard(id - len(t.fixed))
}

// add adds shards without owners at the end, where arrange finds them.
func (t *assignments) add(r assign.Range, names ...string) {
	t.names = append(t.names, names...)
	for range names {
		t.ranges, t.owner = append(t.ranges, r), append(t.owner, assign.None)
		t.moved, t.why = append(t.moved, 0), append(t.why, 0)
	}
}

// unassigned returns a table that contains only the fixed shards.
func unassigned(specs []string, keys Keyspace) (*assignments, error) {
	fixed, err := keyspace.Expand(specs...)
	if err != nil && len(specs) > 0 {
		return nil, err
	}
	if keys.Name != "" {
		if err := keys.Validate(); err != nil {
			return nil, err
		}
		for _, name := range fixed {
			if _, err := keys.index(name); err == nil {
				return nil, fmt.Errorf("sharding: the plan has shard %q twice", name)
			}
		}
	}
	t := &assignments{specs: specs, fixed: fixed, keys: keys}
	t.add(empty, fixed...)
	return t, nil
}

// A division lists changes of ranges, by the shards' indexes in a table. Settled lists the givers
// in complete changes, and Refused lists the shards that do not take their gifts.
type division struct {
	Splits  []assign.Split
	Merges  []assign.Merge
	Settled []int32
	Refused []refusal // the refusals of a change are in the order of its gifts; the other gifts are taken
}

type refusal struct {
	Shard int32
	Why   string
}

// divide ends complete splits and merges, and begins others. It skips changes that the table does
// not permit.
func (t *assignments) divide(d *division) {
	if len(d.Splits)+len(d.Merges)+len(d.Settled)+len(d.Refused) == 0 {
		return
	}
	gone := map[int32]bool{}
	end := func(s int32) {
		gone[s] = true
		delete(t.suspects, t.names[s])
	}
	for _, x := range d.Refused {
		if r := &t.ranges[x.Shard]; t.takeBack(t.names[x.Shard], x.Why, r) && r.Empty() {
			end(x.Shard)
		}
	}
	for i := range t.changes {
		if x := &t.changes[i]; x.Number == t.number {
			x.Gifts = nil
		}
	}
	for _, s := range d.Settled {
		t.changes = slices.DeleteFunc(t.changes, func(x rangeChange) bool {
			is := x.From == t.names[s]
			if is && x.Rest.Empty() {
				end(s)
			}
			return is
		})
	}
	for _, s := range d.Splits {
		if t.splits(s) {
			t.split(s)
		}
	}
	for _, m := range d.Merges {
		if t.merges(m) && !gone[m.From] && !gone[m.To] {
			t.merge(m)
		}
	}
	t.sort(gone)
}

// takeBack undoes a gift to a shard, and returns false if there was no gift.
func (t *assignments) takeBack(shard, why string, has *assign.Range) bool {
	c := t.change(shard)
	if c == nil || c.From == shard || !c.Rest.Empty() && !adjoin(c.Rest, c.gift(shard).Range) {
		return false
	}
	*has = c.before(shard, *has)
	c.Number, c.Rest, c.Why = t.number, join(c.Rest, c.gift(shard).Range), why
	i, ok := indexOf(t, c.From)
	t.ranges[i] = c.Rest
	return ok
}

func (t *assignments) splits(s assign.Split) bool {
	if s.Shard < 0 || int(s.Shard) >= len(t.names) || len(s.At) < 1 || len(s.At) > keyspace.MaxCuts || t.change(t.names[s.Shard]) != nil {
		return false
	}
	r := t.ranges[s.Shard]
	last := r.From
	for _, h := range s.At {
		if h <= last || !r.Has(h) {
			return false
		}
		last = h
	}
	return !r.Empty()
}

func (t *assignments) split(s assign.Split) {
	r := t.ranges[s.Shard]
	c := rangeChange{Number: t.number, From: t.names[s.Shard], Rest: assign.Range{From: r.From, To: s.At[0]}}
	t.ranges[s.Shard] = c.Rest
	for i, h := range s.At {
		g := gift{t.keys.shard(t.next), assign.Range{From: h, To: r.To}}
		if i+1 < len(s.At) {
			g.Range.To = s.At[i+1]
		}
		t.next++
		t.suspect(t.names[s.Shard], g.Shard)
		c.Gifts = append(c.Gifts, g)
		t.add(g.Range, g.Shard)
		last := len(t.names) - 1
		t.owner[last], t.moved[last], t.why[last] = t.owner[s.Shard], t.number, assign.SplitOff
	}
	t.changes = append(t.changes, c)
}

func (t *assignments) merges(m assign.Merge) bool {
	n := int32(len(t.names))
	if m.From < 0 || m.To < 0 || m.From >= n || m.To >= n || m.From == m.To ||
		t.change(t.names[m.From]) != nil || t.change(t.names[m.To]) != nil {
		return false
	}
	a, b := t.ranges[m.From], t.ranges[m.To]
	return !a.Empty() && !b.Empty() && adjoin(a, b)
}

func adjoin(a, b assign.Range) bool {
	return a.To == b.From && a.To != 0 || b.To == a.From && b.To != 0
}

func (t *assignments) merge(m assign.Merge) {
	g := gift{t.names[m.To], t.ranges[m.From]}
	t.ranges[m.To] = join(t.ranges[m.To], g.Range)
	t.ranges[m.From] = empty
	t.suspect(t.names[m.From], g.Shard)
	t.changes = append(t.changes, rangeChange{Number: t.number, From: t.names[m.From], Rest: empty, Gifts: []gift{g}})
}

func (t *assignments) sort(gone map[int32]bool) {
	order := make([]int32, 0, len(t.names))
	for i := range t.names {
		if !gone[int32(i)] {
			order = append(order, int32(i))
		}
	}
	slices.SortFunc(order, func(a, b int32) int { return cmp.Compare(t.names[a], t.names[b]) })
	t.names, t.ranges = ordered(t.names, order), ordered(t.ranges, order)
	t.owner, t.moved, t.why = ordered(t.owner, order), ordered(t.moved, order), ordered(t.why, order)
}

func ordered[T any](of []T, order []int32) []T {
	out := make([]T, len(order))
	for i, k := range order {
		out[i] = of[k]
	}
	return out
}

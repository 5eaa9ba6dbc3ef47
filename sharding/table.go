package sharding

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/internal/keyspace"
)

// assignments is the current table: the sum of the plans in the assigner's log. A table does not
// change once it is made. The next plan makes another table. The zero value is the table before
// the first plan.
type assignments struct {
	number  int64 // of the last plan
	specs   []string
	keys    Keyspace // without a name: no keys
	next    int      // number of the next shard of the keyspace
	names   []string // sorted, like everything by shard
	ranges  []Range  // by shard; empty without keys
	members []Member // by slot; an empty ID is a free slot
	owner   []int32  // by shard: a slot, or None
	moved   []int64  // by shard: number of the plan that moved it
	why     []Reason
	// changes are the incomplete splits and merges, in the order of their plans. No shard is in two
	// of them.
	changes []rangeChange
	// suspects are the shards whose owners died, by name. The values are not modified.
	suspects map[string]*suspicion

	byRange *lazyMap // shared by tables with the same ranges
}

// lazyMap is a map of ranges that is made on first use.
type lazyMap struct {
	once sync.Once
	m    *Map
}

// rangeChange is a split or a merge: a shard gives ranges to others. The table has the ranges that
// result from the change. Without Gifts, the shard takes back ranges that others refused.
type rangeChange struct {
	Number int64 // of the plan
	From   string
	Rest   Range // kept by From; empty for a merge, after which From ends
	Gifts  []gift
	Why    string // without Gifts: why another shard refused them; at most maxRefused bytes
}

// gift is a range on its way to a shard.
type gift struct {
	Shard string `json:"shard"`
	Range Range  `json:"range"`
}

// Assignment is the assigned owner of a shard, with the plan and the reason.
type Assignment struct {
	Shard string
	Owner Member // zero if no member should own it
	Plan  int64
	Why   Reason // zero for a decision before the table that was read first
}

// at returns the assignment of the i-th shard in the order of names.
func (t *assignments) at(i int) Assignment {
	a := Assignment{Shard: t.names[i], Plan: t.moved[i], Why: t.why[i]}
	if o := t.owner[i]; o != None {
		a.Owner = t.members[o]
	}
	return a
}

// session returns the assigned owner of the i-th shard, or "" if it has none.
func (t *assignments) session(i int) core.SessionID {
	if o := t.owner[i]; o != None {
		return t.members[o].ID
	}
	return ""
}

// ranged returns the map of the table's ranges, or nil if it has no keys.
func (t *assignments) ranged() *Map {
	if t.keys.Name == "" {
		return nil
	}
	t.byRange.once.Do(func() { t.byRange.m = newMap(t.number, t.keys, t.names, t.ranges) })
	return t.byRange.m
}

// has reports whether the table has a shard.
func (t *assignments) has(shard string) bool {
	_, ok := indexOf(t, shard)
	return ok
}

// change returns the split or merge in which a shard takes part, or nil.
func (t *assignments) change(shard string) *rangeChange {
	for i := range t.changes {
		c := &t.changes[i]
		if c.From == shard || c.gift(shard) != nil {
			return c
		}
	}
	return nil
}

// busy returns the shards with a change in progress.
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

// gift returns the gift of the change to a shard, or nil.
func (c *rangeChange) gift(shard string) *gift {
	for i := range c.Gifts {
		if c.Gifts[i].Shard == shard {
			return &c.Gifts[i]
		}
	}
	return nil
}

// before returns the range that a shard has until it has noted the change. It is empty for a shard
// that the change made.
func (c *rangeChange) before(shard string, after Range) Range {
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
		return Range{g.Range.To, after.To}
	}
	return Range{after.From, g.Range.From}
}

// join returns the union of two ranges that are neighbours, or one of which is empty.
func join(a, b Range) Range {
	switch {
	case a.Empty():
		return b
	case b.Empty():
		return a
	case a.To == b.From && a.To != 0:
		return Range{a.From, b.To}
	}
	return Range{b.From, a.To}
}

// named returns the shards that get the gifts.
func named(gifts []gift) []string {
	out := make([]string, len(gifts))
	for i := range gifts {
		out[i] = gifts[i].Shard
	}
	return out
}

// planChange is one plan in the form of the log: a base, which replaces the table, or the
// differences from the table before it.
type planChange struct {
	Number int64
	Base   bool
	form   byte // the form that it is written in; 0: the first
	// Only a base has these: the set of shards, and the keyspace with the ranges of its shards.
	Specs   []string
	Keys    Keyspace
	Next    int
	Ranges  []numbered
	Changes []rangeChange
	// Only a base has the suspected shards.
	Suspects map[string]*suspicion

	Isolation isolation
	// Seats are members and their slots. A base lists all members. Other plans list those that
	// joined or changed.
	Seats []memberSlot
	Gone  []int32 // slots set free
	// In Moves, only To, which is a slot or None, and Why are set. A base has a move for each shard
	// with an owner, and Plan is the plan that moved it.
	Moves []slotMove
	// Settled lists the givers of complete changes, and Refused the shards that do not take
	// their gifts. Like Splits and Merges, they name shards as in the table before.
	Splits  []Split
	Merges  []Merge
	Settled []int32
	Refused []refusal // of one change in the order of its gifts; the others are taken
}

// refusal is a shard that does not take its gift, and the reason.
type refusal struct {
	Shard int32
	Why   string
}

// nothing reports whether the change changes nothing.
func (c *planChange) nothing() bool {
	return !c.Base && len(c.Seats)+len(c.Gone)+len(c.Moves)+len(c.Splits)+len(c.Merges)+len(c.Settled)+len(c.Refused)+
		int(c.Isolation.Time) == 0
}

// numbered is a shard of the keyspace and its range.
type numbered struct {
	Shard int
	Range Range
}

// memberSlot is a member in a slot of the table.
type memberSlot struct {
	Slot   int32
	Member Member
}

// slotMove gives a shard to the member in a slot.
type slotMove struct {
	Shard int32
	To    int32
	Plan  int64 // base only: the plan that moved it
	Why   Reason
}

// apply returns the table that results from the change. A change that does not fit the table is an
// error; it occurs only in a log that was tampered with or cut. A valid base always fits.
func (t *assignments) apply(c *planChange) (*assignments, error) {
	next, err := t.begin(c)
	if err != nil {
		return nil, err
	}
	next.number = c.Number
	if !c.Base {
		next.die(c)
	}
	if err := next.seat(c); err != nil {
		return nil, err
	}
	if len(c.Seats) > 0 {
		next.suspects = maps.Clone(next.suspects) // a base may share it
		next.revive()
	}
	for _, m := range c.Moves {
		if m.Shard < 0 || int(m.Shard) >= len(next.names) || m.To < None || int(m.To) >= len(next.members) {
			return nil, fmt.Errorf("sharding: plan %d moves shard %d to slot %d", c.Number, m.Shard, m.To)
		}
		next.owner[m.Shard], next.why[m.Shard] = m.To, m.Why
		if next.moved[m.Shard] = c.Number; c.Base {
			next.moved[m.Shard] = m.Plan
		}
	}
	if len(c.Gone) > 0 { // a freed slot owns nothing
		for i, o := range next.owner {
			if o != None && next.members[o].ID == "" {
				next.owner[i] = None
			}
		}
	}
	if err := next.isolate(c); err != nil {
		return nil, err
	}
	if err := next.divide(c); err != nil {
		return nil, err
	}
	return next, nil
}

// begin returns the table in which a change is made: a copy, or the table of a base without owners.
func (t *assignments) begin(c *planChange) (*assignments, error) {
	if c.Base {
		return unassigned(c)
	}
	if c.Number != t.number+1 || t.names == nil {
		return nil, fmt.Errorf("sharding: plan %d does not follow plan %d", c.Number, t.number)
	}
	return &assignments{
		specs: t.specs, keys: t.keys, next: t.next, names: t.names, ranges: t.ranges, byRange: t.byRange, members: t.members,
		owner: slices.Clone(t.owner), moved: slices.Clone(t.moved), why: slices.Clone(t.why),
		changes: slices.Clone(t.changes), suspects: maps.Clone(t.suspects),
	}, nil
}

// seat gives members their slots.
func (t *assignments) seat(c *planChange) error {
	t.members = slices.Clone(t.members)
	for _, slot := range c.Gone {
		if int(slot) >= len(t.members) || slot < 0 {
			return fmt.Errorf("sharding: plan %d frees slot %d of %d", c.Number, slot, len(t.members))
		}
		t.members[slot] = Member{}
	}
	for _, seat := range c.Seats {
		if seat.Slot < 0 || seat.Slot >= maxMembers {
			return fmt.Errorf("sharding: plan %d names slot %d", c.Number, seat.Slot)
		}
		for int(seat.Slot) >= len(t.members) {
			t.members = append(t.members, Member{})
		}
		t.members[seat.Slot] = seat.Member
	}
	return nil
}

// unassigned returns the table of a base, whose shards have no owner.
func unassigned(c *planChange) (*assignments, error) {
	names, err := keyspace.Expand(c.Specs...)
	if err != nil && len(c.Specs) > 0 {
		return nil, err
	}
	t := &assignments{specs: c.Specs, keys: c.Keys, next: c.Next, names: names, changes: c.Changes, suspects: c.Suspects,
		byRange: &lazyMap{}}
	for range names {
		t.ranges = append(t.ranges, empty)
	}
	if c.Keys.Name != "" {
		if err := c.Keys.Validate(); err != nil {
			return nil, err
		}
		for _, r := range c.Ranges {
			if r.Shard < 0 || r.Shard >= c.Next || c.Next > maxNumbers {
				return nil, fmt.Errorf("sharding: plan %d has shard %d of %d", c.Number, r.Shard, c.Next)
			}
			t.names, t.ranges = append(t.names, c.Keys.shard(r.Shard)), append(t.ranges, r.Range)
		}
	}
	n := len(t.names)
	if n == 0 || n > keyspace.MaxShards {
		return nil, fmt.Errorf("sharding: plan %d has %d shards", c.Number, n)
	}
	t.owner, t.moved, t.why = make([]int32, n), make([]int64, n), make([]Reason, n)
	for i := range t.owner {
		t.owner[i] = None
	}
	t.sort(nil)
	for name := range c.Suspects {
		if !t.has(name) { // no plan would end its suspicion
			t.suspects = maps.Clone(t.suspects)
			maps.DeleteFunc(t.suspects, func(name string, _ *suspicion) bool { return !t.has(name) })
			break
		}
	}
	for i := 1; i < n; i++ {
		if t.names[i] == t.names[i-1] {
			return nil, fmt.Errorf("sharding: plan %d has shard %q twice", c.Number, t.names[i])
		}
	}
	for _, x := range c.Changes {
		for _, shard := range append([]string{x.From}, named(x.Gifts)...) {
			if _, ok := slices.BinarySearch(t.names, shard); !ok {
				return nil, fmt.Errorf("sharding: plan %d changes the range of shard %.60q, which it does not have", c.Number, shard)
			}
		}
	}
	return t, nil
}

// divide makes the splits and merges of a change, and ends the complete ones.
func (t *assignments) divide(c *planChange) error {
	if len(c.Splits)+len(c.Merges)+len(c.Settled)+len(c.Refused) == 0 {
		return nil
	}
	wrong := func(what string, shard int32) error {
		return fmt.Errorf("sharding: plan %d %s shard %d, which it cannot", c.Number, what, shard)
	}
	gone := map[int32]bool{}
	t.ranges = slices.Clone(t.ranges)
	if len(c.Splits)+len(c.Merges)+len(c.Refused) > 0 {
		t.byRange = &lazyMap{}
	}
	for _, x := range c.Refused {
		s := x.Shard
		if s < 0 || int(s) >= len(t.names) || !t.takeBack(c.Number, t.names[s], x.Why, &t.ranges[s]) {
			return wrong("takes back the range of", s)
		}
		if gone[s] = t.ranges[s].Empty(); gone[s] {
			delete(t.suspects, t.names[s])
		}
	}
	for i := range t.changes {
		if x := &t.changes[i]; x.Number == c.Number {
			x.Gifts = nil
		}
	}
	for _, s := range c.Settled {
		at := -1
		if s >= 0 && int(s) < len(t.names) {
			at = slices.IndexFunc(t.changes, func(x rangeChange) bool { return x.From == t.names[s] })
		}
		if at < 0 {
			return wrong("settles", s)
		}
		if gone[s] = t.changes[at].Rest.Empty(); gone[s] {
			delete(t.suspects, t.names[s])
		}
		t.changes = slices.Delete(t.changes, at, at+1)
	}
	n := len(t.names)
	for _, s := range c.Splits {
		if !t.splits(s) {
			return wrong("splits", s.Shard)
		}
		t.split(c.Number, s)
	}
	for _, m := range c.Merges {
		if m.From >= int32(n) || m.To >= int32(n) || !t.merges(m) || gone[m.From] || gone[m.To] {
			return wrong("merges", m.From)
		}
		t.merge(c.Number, m)
	}
	if t.names = slices.Clone(t.names); len(t.names) > keyspace.MaxShards || t.next > maxNumbers {
		return fmt.Errorf("sharding: plan %d makes %d shards, up to number %d: more than %d, or than %d", c.Number, len(t.names), t.next-1,
			keyspace.MaxShards, maxNumbers)
	}
	t.sort(gone)
	return nil
}

// takeBack undoes the gift of a range to a shard. It returns false if there is no such gift.
func (t *assignments) takeBack(number int64, shard, why string, has *Range) bool {
	c := t.change(shard)
	if c == nil || c.From == shard || !c.Rest.Empty() && !adjoin(c.Rest, c.gift(shard).Range) {
		return false
	}
	*has = c.before(shard, *has)
	c.Number, c.Rest, c.Why = number, join(c.Rest, c.gift(shard).Range), why
	i, ok := indexOf(t, c.From)
	t.ranges[i] = c.Rest
	return ok
}

// splits reports whether a split is valid now.
func (t *assignments) splits(s Split) bool {
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

// split makes the new shards, at the end.
func (t *assignments) split(number int64, s Split) {
	r := t.ranges[s.Shard]
	c := rangeChange{Number: number, From: t.names[s.Shard], Rest: Range{r.From, s.At[0]}}
	t.ranges[s.Shard] = c.Rest
	for i, h := range s.At {
		g := gift{t.keys.shard(t.next), Range{h, r.To}}
		if i+1 < len(s.At) {
			g.Range.To = s.At[i+1]
		}
		t.next++
		t.suspect(t.names[s.Shard], g.Shard)
		c.Gifts = append(c.Gifts, g)
		t.names, t.ranges = append(slices.Clip(t.names), g.Shard), append(t.ranges, g.Range)
		t.owner, t.moved, t.why = append(t.owner, t.owner[s.Shard]), append(t.moved, number), append(t.why, SplitOff)
	}
	t.changes = append(t.changes, c)
}

// merges reports whether a merge is valid now.
func (t *assignments) merges(m Merge) bool {
	n := int32(len(t.names))
	if m.From < 0 || m.To < 0 || m.From >= n || m.To >= n || m.From == m.To ||
		t.change(t.names[m.From]) != nil || t.change(t.names[m.To]) != nil {
		return false
	}
	a, b := t.ranges[m.From], t.ranges[m.To]
	return !a.Empty() && !b.Empty() && adjoin(a, b)
}

// adjoin reports whether two ranges are neighbours.
func adjoin(a, b Range) bool { return a.To == b.From && a.To != 0 || b.To == a.From && b.To != 0 }

func (t *assignments) merge(number int64, m Merge) {
	g := gift{t.names[m.To], t.ranges[m.From]}
	t.ranges[m.To] = join(t.ranges[m.To], g.Range)
	t.ranges[m.From] = empty
	t.suspect(t.names[m.From], g.Shard)
	t.changes = append(t.changes, rangeChange{Number: number, From: t.names[m.From], Rest: empty, Gifts: []gift{g}})
}

// sort sorts the shards by name, and removes those in gone.
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

// base returns the whole table as a change.
func (t *assignments) base(number int64) *planChange {
	c := &planChange{Number: number, Base: true, Specs: t.specs, Keys: t.keys, Next: t.next, Changes: t.changes, Suspects: t.suspects}
	for i, m := range t.members {
		if m.ID != "" {
			c.Seats = append(c.Seats, memberSlot{int32(i), m})
		}
	}
	for i, o := range t.owner {
		if o != None {
			c.Moves = append(c.Moves, slotMove{Shard: int32(i), To: o, Plan: t.moved[i], Why: t.why[i]})
		}
	}
	if t.keys.Name == "" {
		return c
	}
	ending := map[string]bool{}
	for _, x := range t.changes {
		ending[x.From] = x.Rest.Empty()
	}
	for i, name := range t.names {
		if t.ranges[i].Empty() && !ending[name] {
			continue
		}
		if k, err := t.keys.index(name); err == nil {
			c.Ranges = append(c.Ranges, numbered{k, t.ranges[i]})
		}
	}
	return c
}

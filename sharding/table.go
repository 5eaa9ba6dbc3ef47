package sharding

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/internal/keyspace"
	"github.com/tenure-go/tenure/sharding/assign"
)

// The current table is the sum of the plans in the assigner's log. A table is immutable. Each plan
// produces a new table. The zero value is the table before the first plan.
type assignments struct {
	number  int64 // number of the last plan
	specs   []string
	keys    Keyspace        // if it has no name, there is no keyspace
	next    int             // number that the keyspace's next new shard gets
	names   []string        // sorted; all slices by shard have this order
	ranges  []assign.Range  // ranges by shard; empty if there is no keyspace
	members []assign.Member // members by slot; in a free slot, the ID is empty
	owner   []int32         // for each shard, a slot or None
	moved   []int64         // for each shard, the number of the plan that moved it
	why     []assign.Reason
	// The incomplete splits and merges are in the order of their plans. A shard takes part in at
	// most one change.
	changes []rangeChange
	// The suspects are shards whose owners died, by name. The values are never modified.
	suspects map[string]*suspicion

	byRange *lazyMap // shared by tables with the same ranges
}

// A lazyMap is built on first use.
type lazyMap struct {
	once sync.Once
	m    *Map
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

// If the table has no keyspace, ranged returns nil.
func (t *assignments) ranged() *Map {
	if t.keys.Name == "" {
		return nil
	}
	t.byRange.once.Do(func() { t.byRange.m = newMap(t.number, t.keys, t.names, t.ranges) })
	return t.byRange.m
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

// planChange is one plan in the log: either a base, which replaces the table, or a list of
// differences from the previous table.
type planChange struct {
	Number int64
	Base   bool
	form   byte // the form in which the plan is written; 0 is the first form
	// The set of shards, and the keyspace with its shards' ranges, are present only in a base.
	Specs   []string
	Keys    Keyspace
	Next    int
	Ranges  []numbered
	Changes []rangeChange
	// Suspects is present only in a base.
	Suspects map[string]*suspicion

	Isolation isolation
	// A base lists all members. Other plans list only the members that joined or changed.
	Seats []memberSlot
	Gone  []int32 // slots that become free
	// A move in Moves sets only To and Why. The value of To is a slot or None. A base contains a
	// move for each shard with an owner. Such a move's Plan is the plan that moved the shard.
	Moves []slotMove
	// Settled lists the givers in complete changes, and Refused lists the shards that do not take
	// their gifts. Like Splits and Merges, these lists refer to the shards of the previous table.
	Splits  []assign.Split
	Merges  []assign.Merge
	Settled []int32
	Refused []refusal // the refusals of a change are in the order of its gifts; the other gifts are taken
}

type refusal struct {
	Shard int32
	Why   string
}

func (c *planChange) nothing() bool {
	return !c.Base && len(c.Seats)+len(c.Gone)+len(c.Moves)+len(c.Splits)+len(c.Merges)+len(c.Settled)+len(c.Refused)+
		int(c.Isolation.Time) == 0
}

type numbered struct {
	Shard int
	Range assign.Range
}

type memberSlot struct {
	Slot   int32
	Member assign.Member
}

type slotMove struct {
	Shard int32
	To    int32
	Plan  int64 // only in a base: the plan that moved the shard
	Why   assign.Reason
}

// If the change does not fit the table, apply returns an error. A change fails to fit only if the
// log was tampered with or truncated. A valid base always fits.
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
		if m.Shard < 0 || int(m.Shard) >= len(next.names) || m.To < assign.None || int(m.To) >= len(next.members) {
			return nil, fmt.Errorf("sharding: plan %d moves shard %d to slot %d", c.Number, m.Shard, m.To)
		}
		next.owner[m.Shard], next.why[m.Shard] = m.To, m.Why
		if next.moved[m.Shard] = c.Number; c.Base {
			next.moved[m.Shard] = m.Plan
		}
	}
	if len(c.Gone) > 0 { // the member of a freed slot owns nothing
		for i, o := range next.owner {
			if o != assign.None && next.members[o].ID == "" {
				next.owner[i] = assign.None
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

// begin returns the table to which a change is applied: for a base, the base's table without
// owners, and for any other change, a copy of t.
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

func (t *assignments) seat(c *planChange) error {
	t.members = slices.Clone(t.members)
	for _, slot := range c.Gone {
		if int(slot) >= len(t.members) || slot < 0 {
			return fmt.Errorf("sharding: plan %d frees slot %d of %d", c.Number, slot, len(t.members))
		}
		t.members[slot] = assign.Member{}
	}
	for _, seat := range c.Seats {
		if seat.Slot < 0 || seat.Slot >= maxMembers {
			return fmt.Errorf("sharding: plan %d names slot %d", c.Number, seat.Slot)
		}
		for int(seat.Slot) >= len(t.members) {
			t.members = append(t.members, assign.Member{})
		}
		t.members[seat.Slot] = seat.Member
	}
	return nil
}

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
	t.owner, t.moved, t.why = make([]int32, n), make([]int64, n), make([]assign.Reason, n)
	for i := range t.owner {
		t.owner[i] = assign.None
	}
	t.sort(nil)
	for name := range c.Suspects {
		if !t.has(name) { // if the shard does not exist, no plan would end its suspicion
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

// divide begins a change's splits and merges, and ends those that are complete.
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

// takeBack undoes a gift to a shard, and returns false if there was no gift.
func (t *assignments) takeBack(number int64, shard, why string, has *assign.Range) bool {
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

func (t *assignments) split(number int64, s assign.Split) {
	r := t.ranges[s.Shard]
	c := rangeChange{Number: number, From: t.names[s.Shard], Rest: assign.Range{From: r.From, To: s.At[0]}}
	t.ranges[s.Shard] = c.Rest
	for i, h := range s.At {
		g := gift{t.keys.shard(t.next), assign.Range{From: h, To: r.To}}
		if i+1 < len(s.At) {
			g.Range.To = s.At[i+1]
		}
		t.next++
		t.suspect(t.names[s.Shard], g.Shard)
		c.Gifts = append(c.Gifts, g)
		t.names, t.ranges = append(slices.Clip(t.names), g.Shard), append(t.ranges, g.Range)
		t.owner, t.moved, t.why = append(t.owner, t.owner[s.Shard]), append(t.moved, number), append(t.why, assign.SplitOff)
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

func (t *assignments) merge(number int64, m assign.Merge) {
	g := gift{t.names[m.To], t.ranges[m.From]}
	t.ranges[m.To] = join(t.ranges[m.To], g.Range)
	t.ranges[m.From] = empty
	t.suspect(t.names[m.From], g.Shard)
	t.changes = append(t.changes, rangeChange{Number: number, From: t.names[m.From], Rest: empty, Gifts: []gift{g}})
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

func (t *assignments) base(number int64) *planChange {
	c := &planChange{Number: number, Base: true, Specs: t.specs, Keys: t.keys, Next: t.next, Changes: t.changes, Suspects: t.suspects}
	for i, m := range t.members {
		if m.ID != "" {
			c.Seats = append(c.Seats, memberSlot{int32(i), m})
		}
	}
	for i, o := range t.owner {
		if o != assign.None {
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

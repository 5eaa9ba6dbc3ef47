package sharding

import (
	"fmt"
	"slices"

	"github.com/tenure-go/tenure/core"
)

// assignments are the table in force: the sum of the plans in the assigner's log. The
// zero value is that before the first plan. Not safe for concurrent use.
type assignments struct {
	number  int64 // of the last plan
	specs   []string
	names   []string
	members []Member // by slot; an empty ID is a free slot
	owner   []int32  // by shard: a slot, or None
	moved   []int64  // by shard: number of the plan that moved it
	why     []Reason
}

// Assignment is who should own a shard, and since which plan and why.
type Assignment struct {
	Shard string
	Owner Member // zero if nobody should
	Plan  int64
	Why   Reason // zero for what an earlier table than the one read first had decided
}

// at is the assignment of the i-th shard in the order of names.
func (t *assignments) at(i int) Assignment {
	a := Assignment{Shard: t.names[i], Plan: t.moved[i], Why: t.why[i]}
	if o := t.owner[i]; o != None {
		a.Owner = t.members[o]
	}
	return a
}

// session is who should own the i-th shard; empty if nobody should.
func (t *assignments) session(i int) core.SessionID {
	if o := t.owner[i]; o != None {
		return t.members[o].ID
	}
	return ""
}

// planChange is one plan as it is written to the log: a base, which replaces the
// table, or what differs from the table before it.
type planChange struct {
	Number int64
	Base   bool
	Specs  []string // of the shard set; base only
	// Seats are members and their slots: all of a base's, else those that joined or
	// changed.
	Seats []memberSlot
	Gone  []int32 // slots set free
	// Moves say To, a slot or None, and Why. Of a base there is one per shard that
	// has an owner, and Plan says when it was moved.
	Moves []slotMove
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

// apply makes the change. One that does not fit the table, which happens only to
// a log that was tampered with or cut, leaves it as it is; a base always fits if
// it is valid.
func (t *assignments) apply(c *planChange) error {
	next := *t
	if c.Base {
		var err error
		if next, err = unassigned(c.Specs); err != nil {
			return err
		}
	} else if c.Number != t.number+1 || t.names == nil {
		return fmt.Errorf("sharding: plan %d does not follow plan %d", c.Number, t.number)
	}
	next.number = c.Number
	next.members = slices.Clone(next.members)
	for _, slot := range c.Gone {
		if int(slot) >= len(next.members) || slot < 0 {
			return fmt.Errorf("sharding: plan %d frees slot %d of %d", c.Number, slot, len(next.members))
		}
		next.members[slot] = Member{}
	}
	for _, seat := range c.Seats {
		if seat.Slot < 0 || seat.Slot >= maxMembers {
			return fmt.Errorf("sharding: plan %d names slot %d", c.Number, seat.Slot)
		}
		for int(seat.Slot) >= len(next.members) {
			next.members = append(next.members, Member{})
		}
		next.members[seat.Slot] = seat.Member
	}
	for _, m := range c.Moves {
		if m.Shard < 0 || int(m.Shard) >= len(next.names) || m.To < None || int(m.To) >= len(next.members) {
			return fmt.Errorf("sharding: plan %d moves shard %d to slot %d", c.Number, m.Shard, m.To)
		}
	}
	for _, m := range c.Moves {
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
	*t = next
	return nil
}

// unassigned is a table whose shards have no owner.
func unassigned(specs []string) (assignments, error) {
	names, err := Expand(specs...)
	if err != nil {
		return assignments{}, err
	}
	n := len(names)
	t := assignments{specs: specs, names: names, owner: make([]int32, n), moved: make([]int64, n), why: make([]Reason, n)}
	for i := range t.owner {
		t.owner[i] = None
	}
	return t, nil
}

// base is the whole table as a change.
func (t *assignments) base(number int64) *planChange {
	c := &planChange{Number: number, Base: true, Specs: t.specs}
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
	return c
}

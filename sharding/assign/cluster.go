package assign

import (
	"fmt"
	"strings"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/internal/keyspace"
)

// None is the owner's index for a shard without an owner.
const None = -1

// Cluster is an Assigner's input: the members, the shards and their owners.
type Cluster struct {
	Members []Member // in the order of their IDs, so that all members compute the same plan
	Shards  []Shard
	Rules   Rules // the operators' rules; they take precedence over the Assigner's rules
	// Frozen, which operators set, means that only shards whose owner is gone or leaving move.
	Frozen bool
	// Moved is the load that was moved in the last minute to balance the members: the sum of that
	// minute's Plan.Moved.
	Moved float64
	// Urgent reports whether Plan.Urgent was set in any of the last minute's plans.
	Urgent bool
	// Begun is the number of ranges with which the Keyspace began, or 0 if that number is unknown.
	Begun int
}

// Member is a candidate for shards.
type Member struct {
	ID     core.SessionID
	Node   string // label by which rules refer to the member
	Zone   string // for Rules.Spread; the empty string is also a zone
	Weight int32  // capacity, relative to that of other members; 0: no shards, unless all weights are 0
	// Capacity is the load that the member can handle, in the unit of Shard.Load. If Capacity is 0,
	// it is derived from the member's weight.
	Capacity float64
	Drain    bool // keeps no shards and gets none
	Full     bool // keeps its shards, up to its share, and gets no others
	// Ineligible is the reason why the member is not eligible. It is set only if the member drains
	// for no other reason.
	Ineligible string
}

// Shard is a shard and its current owner.
type Shard struct {
	Name  string
	Owner int32   // index of a member, or None
	Moved int64   // number of the plan that gave the shard to its owner; shards with a higher number move first
	Load  float64 // in any unit, at least 0; 0 if it is unknown
	Fixed bool    // moved recently, so it must not move now to balance the members
	// Range is the shard's range in a Keyspace, and is empty for other shards.
	Range Range
	// Busy reports whether the shard is being split or merged. A busy shard is not split or merged
	// further.
	Busy bool
	// Parts shows the distribution of the load in the range, in the order of hashes, according to
	// the owner's last report. A key that carries much of the load has a separate part, one hash
	// wide. If Parts is nil, the distribution is unknown.
	Parts []Part
}

// Part is the load in a part of a shard's range.
type Part struct {
	Range Range
	Load  float64
}

// Assigner decides which member should own each shard. The Plan method is a pure function. For the
// same Cluster, Plan returns the same result on every member. Plan does not modify the Cluster.
type Assigner interface {
	Plan(*Cluster) *Plan
}

// Reason is why a shard was moved.
type Reason uint8

// The reasons for moves.
const (
	Orphaned   Reason = iota + 1 // no member owned it
	Drained                      // its owner is drained
	Ruled                        // a rule forbids its owner, or names another member
	Shared                       // its owner had more than its share, its new owner less
	Loaded                       // its owner had more load than its share
	TakenOver                    // its owner was gone, and its new owner took it without a plan
	Barred                       // its owner is not eligible: core.Options.Eligible
	SplitOff                     // its owner owned the shard from which it was split
	Unprepared                   // not moved, because its new owner could not prepare it
)

var reasonNames = [...]string{
	Orphaned: "nobody owned it", Drained: "its owner is drained", Ruled: "a rule says so",
	Shared: "its owner had more than its share", Loaded: "its owner had too much load",
	TakenOver: "taken over when its owner was gone", Barred: "its owner is not eligible",
	SplitOff: "split off a shard of its owner", Unprepared: "its next owner could not prepare it",
}

func (r Reason) String() string {
	if int(r) < len(reasonNames) && reasonNames[r] != "" {
		return reasonNames[r]
	}
	return "unknown"
}

// Move is one shard's change of owner.
type Move struct {
	Shard    int32 // index in Cluster.Shards
	From, To int32 // indices in Cluster.Members, or None
	Why      Reason
}

// Plan is an Assigner's output.
type Plan struct {
	Owner []int32 // by shard: index of a member; None only if no member can own any shard
	Moves []Move  // the differences from the Cluster, by shard
	Share []int   // by member: the number of shards that it should have
	// Splits and Merges change the ranges. A shard takes part in at most one split or merge.
	Splits []Split
	Merges []Merge
	// Moved is the load that the plan's Moves and Merges move to balance the members.
	Moved float64
	// Urgent reports whether more load than usual may move, because a member is new or has far too
	// much load.
	Urgent bool
	// Elsewhere lists, in ascending order, the shards that are outside their preferred zone
	// (Rules.Prefer).
	Elsewhere []int32
	// Unfinished reports whether a budget or a cooldown prevented moves in this plan.
	Unfinished bool
}

// Split divides a shard's range at the given hashes. Each part of the range, from one of these
// hashes to the next, becomes a new shard. The new shards first belong to the divided shard's
// owner.
type Split struct {
	Shard int32    // index in Cluster.Shards
	At    []uint64 // ascending, within the range but not at its beginning; at most 15
}

// Merge gives the whole range of one shard to a neighbor. The shard then ceases to exist.
type Merge struct {
	From, To int32 // indices in Cluster.Shards
}

const maxWhy = 160

// Explain returns, as text, the reason for one of the plan's moves. If the owner is not eligible,
// the text includes the owner's reason, cut off after 160 bytes.
func (p *Plan) Explain(c *Cluster, m Move) string {
	node := func(i int32) string {
		if i < 0 || int(i) >= len(c.Members) {
			return "nobody"
		}
		if int(i) >= len(p.Share) {
			return c.Members[i].Node
		}
		return fmt.Sprintf("%s (share %d)", c.Members[i].Node, p.Share[i])
	}
	text := fmt.Sprintf("%s from %s to %s: %v", c.Shards[m.Shard].Name, node(m.From), node(m.To), m.Why)
	if m.Why != Barred || m.From < 0 || int(m.From) >= len(c.Members) {
		return text
	}
	why := c.Members[m.From].Ineligible
	if len(why) > maxWhy {
		why = strings.ToValidUTF8(why[:maxWhy], "") + "..."
	}
	return text + ": " + why
}

// Validate returns an error that matches core.ErrInvalid if the plan is invalid. A valid plan
// assigns each shard of the Cluster to one of the Cluster's members, or to None, and changes no
// other shards.
func (p *Plan) Validate(c *Cluster) error {
	if p == nil || len(p.Owner) != len(c.Shards) {
		return invalid("a plan does not name the owner of each of the %d shards", len(c.Shards))
	}
	for s, o := range p.Owner {
		if o < None || int(o) >= len(c.Members) {
			return invalid("a plan gives shard %.60q to member %d of %d", c.Shards[s].Name, o, len(c.Members))
		}
	}
	known := func(s int32) bool { return s >= 0 && int(s) < len(c.Shards) }
	for _, m := range p.Moves {
		if !known(m.Shard) {
			return invalid("a plan moves shard %d of %d", m.Shard, len(c.Shards))
		}
	}
	for _, x := range p.Splits {
		if !known(x.Shard) || len(x.At) > keyspace.MaxCuts {
			return invalid("a plan splits shard %d of %d at %d hashes", x.Shard, len(c.Shards), len(x.At))
		}
	}
	for _, m := range p.Merges {
		if !known(m.From) || !known(m.To) {
			return invalid("a plan merges shard %d into shard %d of %d", m.From, m.To, len(c.Shards))
		}
	}
	return nil
}

func invalid(format string, args ...any) error {
	return fmt.Errorf("tenure: %w sharding options: %s", core.ErrInvalid, fmt.Sprintf(format, args...))
}

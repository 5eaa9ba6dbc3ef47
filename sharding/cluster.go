package sharding

import (
	"fmt"
	"strings"

	"github.com/tenure-go/tenure/core"
)

// None is the owner of a shard that no member owns.
const None = -1

// Cluster is the input of an Assigner: the members, the shards and their owners.
type Cluster struct {
	Members []Member // in the order of their IDs, so that all compute the same plan
	Shards  []Shard
	Rules   Rules // of operators; they take precedence over the Assigner's
	// Frozen is set by an operator: only shards whose owner is gone or is leaving are moved.
	Frozen bool
	// Moved is the load that was moved in the last minute to balance the members: the sum of
	// Plan.Moved over the plans of that minute.
	Moved float64
	// Urgent reports whether Plan.Urgent was set in a plan of the last minute.
	Urgent bool
	// Begun is the number of ranges with which the Keyspace began, or 0 if it is unknown.
	Begun int
}

// Member is a candidate for shards.
type Member struct {
	ID     core.SessionID
	Node   string // label, by which rules name it
	Zone   string // for Rules.Spread; empty is a zone, too
	Weight int32  // capacity, relative to the others'; 0: no shards, unless no member has more
	// Capacity is the load that the member can take, in the unit of Shard.Load. If it is 0, it is
	// derived from the member's weight.
	Capacity float64
	Drain    bool // keeps nothing and gets nothing
	Full     bool // keeps what it has within its share, and gets nothing
	// Ineligible says why the member is not eligible, if it drains only because of that.
	Ineligible string
}

// Shard is a shard and its current owner.
type Shard struct {
	Name  string
	Owner int32   // index of a member, or None
	Moved int64   // number of the plan that gave it to its owner: later ones move first
	Load  float64 // in any unit, at least 0; 0 if it is unknown
	Fixed bool    // not to be moved to balance the members now, because it moved recently
	// Range is the shard's range in a Keyspace. It is empty for other shards.
	Range Range
	// Busy reports whether the shard is being split or merged, so that it is not split or
	// merged again.
	Busy bool
	// Parts says where in the range the load lies, in the order of hashes, according to the
	// owner's last report. A key with much of the load has its own part, one hash wide. Nil
	// means unknown.
	Parts []Part
}

// Part is the load of a part of a shard's range.
type Part struct {
	Range Range
	Load  float64
}

// Assigner decides which member should own each shard. Plan is a pure function: the same Cluster
// gives the same Plan on every member. It does not modify the Cluster.
type Assigner interface {
	Plan(*Cluster) *Plan
}

// Reason is the reason why a shard was moved.
type Reason uint8

// The reasons.
const (
	Orphaned   Reason = iota + 1 // no member owned it
	Drained                      // its owner is drained
	Ruled                        // a rule forbids its owner, or names another member
	Shared                       // its owner had more than its share, and the new owner less
	Loaded                       // its owner had more load than its share
	TakenOver                    // its new owner took it without a plan, after its owner was gone
	Barred                       // its owner is not eligible: core.Options.Eligible
	SplitOff                     // its owner owned the shard from which it was split
	Unprepared                   // it stays, because the member that was to get it could not prepare it
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

// Plan is the outcome of an Assigner.
type Plan struct {
	Owner []int32 // by shard: index of a member; None only if no member can own anything
	Moves []Move  // the differences from the Cluster, by shard
	Share []int   // by member: the number of shards that it should have
	// Splits and Merges change the ranges. Each shard takes part in at most one of them.
	Splits []Split
	Merges []Merge
	// Moved is the load that Moves or Merges move to balance the members.
	Moved float64
	// Urgent reports that more load than usual may move, because a member had far too much load
	// or was new.
	Urgent bool
	// Elsewhere lists, in ascending order, the shards outside the zone that Rules.Prefer names
	// for them.
	Elsewhere []int32
	// Unfinished reports whether a budget or a cooldown prevented moves in this plan.
	Unfinished bool
}

// Split divides a shard's range at hashes. Each part of the range, from one of these hashes to
// the next, becomes a new shard. At first, the new shards belong to the owner of the divided
// shard.
type Split struct {
	Shard int32    // index in Cluster.Shards
	At    []uint64 // ascending, within the range but not at its beginning; at most 15
}

// Merge gives the whole range of one shard to a neighbour. The shard that gives it then ends.
type Merge struct {
	From, To int32 // indices in Cluster.Shards
}

// rendezvous returns the rank of a node in a shard's order of members (Thaler and Ravishankar). The
// highest comes first. Core's members claim a free shard in this order, so a first plan keeps the
// shards that were claimed without a plan.
func rendezvous(shard, node uint64) uint64 {
	z := shard ^ node
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// fnv1a is FNV-1a, 64 bits.
func fnv1a(s string) uint64 {
	h := uint64(14695981039346656037)
	for i := 0; i < len(s); i++ {
		h = (h ^ uint64(s[i])) * 1099511628211
	}
	return h
}

// maxWhy is the largest part of a member's reason in an explanation, in bytes.
const maxWhy = 160

// Explain returns the reason for a move of the plan as text. If the owner is not eligible, the
// text includes the first 160 bytes of the owner's reason.
func (p *Plan) Explain(c *Cluster, m Move) string {
	node := func(i int32) string {
		if i < 0 || int(i) >= len(c.Members) {
			return "nobody"
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

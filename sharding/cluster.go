package sharding

import (
	"fmt"
	"strings"

	"github.com/tenure-go/tenure/core"
)

// None is the owner of a shard that nobody owns.
const None = -1

// Cluster is what an Assigner decides on: who could own what, and who does.
type Cluster struct {
	Members []Member // in the order of their IDs, so that all compute the same plan
	Shards  []Shard
	Rules   Rules // operators': they come before the Assigner's
	// Frozen, by an operator: nothing is moved but shards whose owner is gone, or leaves.
	Frozen bool
	// Moved is the load that was moved for balance's sake in the last minute: the sum of
	// Plan.Moved of the plans made in it.
	Moved float64
	// Urgent: a plan of the last minute had Plan.Urgent.
	Urgent bool
	// Begun is how many ranges the Keyspace began with; 0: not known.
	Begun int
}

// Member is a candidate for shards.
type Member struct {
	ID     core.SessionID
	Node   string // label, by which rules name it
	Zone   string // for Rules.Spread; empty is a zone, too
	Weight int32  // capacity, relative to the others'; 0: nothing, unless nobody has more
	// Capacity is how much load it can take, in the unit of Shard.Load; 0: as its weight says.
	Capacity float64
	Drain    bool // keeps nothing and gets nothing
	Full     bool // keeps what it has within its share, and gets nothing
	// Ineligible is why the member is not eligible, where it drains for that alone.
	Ineligible string
}

// Shard is a shard and its owner at present.
type Shard struct {
	Name  string
	Owner int32   // index of a member, or None
	Moved int64   // number of the plan that gave it to its owner: the latest go first
	Load  float64 // in any unit, at least 0; 0 where it is not known
	Fixed bool    // not to be moved for balance's sake now: it was not long ago
	// Range is that of a shard of a Keyspace, and empty for others.
	Range Range
	// Busy: a split or a merge of it is not complete, so it is not split or merged.
	Busy bool
	// Parts says where in the range the load lies, in the order of hashes, by its owner's last
	// report. A key with much of the load has a part of its own, one hash wide. Nil: not known.
	Parts []Part
}

// Part is the load of a part of a shard's range.
type Part struct {
	Range Range
	Load  float64
}

// Assigner decides who should own what. Plan is a pure function: the same Cluster
// gives the same Plan on every member. It does not modify the Cluster.
type Assigner interface {
	Plan(*Cluster) *Plan
}

// Reason says why a shard was moved.
type Reason uint8

// The reasons.
const (
	Orphaned   Reason = iota + 1 // nobody owned it
	Drained                      // its owner is drained
	Ruled                        // a rule forbids its owner, or names another
	Shared                       // its owner had more than its share, the new one less
	Loaded                       // its owner had more load than its share
	TakenOver                    // its new owner took it without a plan, when its owner was gone
	Barred                       // its owner is not eligible: core.Options.Eligible
	SplitOff                     // the shard it was split from has this owner
	Unprepared                   // it stays: the member that was to get it could not prepare it
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
	Owner []int32 // by shard: index of a member; None only if nobody can own anything
	Moves []Move  // what differs from the Cluster, by shard
	Share []int   // by member: how many shards it should have
	// Splits and Merges change the ranges, each of its shards at most once.
	Splits []Split
	Merges []Merge
	// Moved is the load that is moved for balance's sake, by Moves or Merges.
	Moved float64
	// Urgent: a member had far too much load, or was new, so that more may move than otherwise.
	Urgent bool
	// Elsewhere are the shards that are not in the zone that Rules.Prefer names, ascending.
	Elsewhere []int32
	// Unfinished: a budget or a cooldown kept something from being moved now.
	Unfinished bool
}

// Split divides a shard's range: from each hash on, up to the next one, the range goes to a new
// shard, which the owner of the old one gets first.
type Split struct {
	Shard int32    // index in Cluster.Shards
	At    []uint64 // ascending, all within the range, none its beginning; at most MaxCuts
}

// MaxCuts is the most hashes at which one Split divides a range.
const MaxCuts = 15

// Merge gives the whole range of one shard to that of a neighbour; the giver ends.
type Merge struct {
	From, To int32 // indices in Cluster.Shards
}

// rendezvous is the place of a node in a shard's order of members (Thaler and
// Ravishankar): the highest first. It is the order in which core's members claim
// a free shard, so a first plan keeps what was claimed without one.
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

// maxWhy bounds the bytes of a member's reason in an explanation.
const maxWhy = 160

// Explain says why a move of the plan was made, for people: of an owner that is not
// eligible the first 160 bytes of its reason, too.
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

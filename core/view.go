package core

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/tenure-go/tenure/core/control"
	"github.com/tenure-go/tenure/core/driver"
)

// View is a snapshot of a namespace as one member knows it. A View never changes, and is safe for
// concurrent use. Callers must not modify its slices. A View is only as recent as the last news
// from the store. Use a View only for information, because only a lease permits work.
type View struct {
	Node    string    // this member's label
	Session SessionID // this member's session; empty before it has joined and while it rejoins
	Trusted bool      // the session was trusted when the snapshot was made
	Err     error     // if not nil, the member is halted, and no lease is granted (ErrStoreChanged)
	// Ineligible is the reason why this member is not eligible (Options.Eligible), or empty if the
	// member is eligible. For other members, see Member.Ineligible.
	Ineligible string
	// Trouble describes this member's problems that an operator must fix: calls that the store
	// refuses, a stuck handler, or what Options.Trouble returned. For other members, see
	// Member.Trouble.
	Trouble string
	Leaving bool // a planned stop has begun (Elector.Leave), or Run has ended
	Stopped bool // Run is giving up all leases, or has ended
	// CertificateEnd is when the newest client certificate for the store expires, or zero if there
	// is no such certificate.
	CertificateEnd time.Time

	Members   []Member    // live members, including this one, sorted by node and session
	Silent    []SessionID // members that were silent for their TTL and are not evicted yet; see Unowned
	Shards    []Ownership // every shard that this member has seen or wants, sorted by name
	Leases    []LeaseInfo // this member's leases, including leases whose handlers still run, sorted by shard
	Contended int         // number of shards that this member contends for

	// Moves are the newest changes to this member's leases, oldest first: up to 64 requested
	// changes and up to 64 others. The kinds are LeaseGranted, HandlerStopping, LeaseEnded,
	// HandlerStuck and HandlerReturned. A HandlerReturned may also represent a handler that was
	// never called. Only At, Kind, Fence and Err are set. For LeaseGranted, Err contains the former
	// session if the shard was taken over. For HandlerStuck, Err is nil.
	Moves []Event

	// Rules are the operators' rules that this member read last, including expired rules. Rules is
	// nil until the member knows whether there are rules.
	Rules []control.Rule

	// Damaged lists up to 64 unreadable records in the store, sorted by key. Damaged covers the
	// last two periods of Options.Resync, but at least the last 2 min. DamagedTotal is the total
	// number of damaged records found since the start.
	Damaged      []*DamagedError
	DamagedTotal int

	gen uint64
}

// Ownership describes a shard and its owner.
type Ownership struct {
	Shard   string
	Session SessionID // the session in the shard's record; empty if none
	Token   Token     // the token of the last lease
	Node    string    // label of the owner; empty if no live member owns the shard

	// Aside is the reason why the shard should have no owner, such as a quarantine. Aside is empty
	// if the shard should have an owner.
	Aside string
	// AsideUntil is when the shard should have an owner again, or zero if never.
	AsideUntil time.Time
}

// LeaseState is the state of one of this member's leases. A lease moves only to later states:
//
//	starting -> held        the handler is called
//	starting -> returned    asked to stop, or revoked, before that
//	held -> draining        the handler is asked to stop
//	held, draining -> revoked
//	revoked -> stuck        the handler does not return
//	held ... stuck -> returned
//
// After the last state, the Elector gives up the lease in the store, and Views no longer show the
// lease.
type LeaseState string

// These are the states of a lease, in the order in which a lease reaches them.
const (
	LeaseStarting LeaseState = "starting" // granted; its handler has not been called yet
	LeaseHeld     LeaseState = "held"     // its handler runs
	LeaseDraining LeaseState = "draining" // its handler was asked to stop
	LeaseRevoked  LeaseState = "revoked"  // may not be used; its handler still runs
	LeaseStuck    LeaseState = "stuck"    // revoked, and the drain budget is spent
	LeaseReturned LeaseState = "returned" // its handler has returned; the lease is being given up
)

// usable reports whether the lease may still be used.
func (s LeaseState) usable() bool {
	return s == LeaseStarting || s == LeaseHeld || s == LeaseDraining
}

// running reports whether the handler has been called and has not returned.
func (s LeaseState) running() bool { return s != LeaseStarting && s != LeaseReturned }

// LeaseInfo describes one of this member's leases.
type LeaseInfo struct {
	Fence Fence
	State LeaseState
	Since time.Time // when the lease was granted
}

// Owner returns the view's entry for a shard. The ok result is false if this member has not seen
// the shard and does not want it. If Node is empty, no live member owns the shard.
func (v *View) Owner(shard string) (o Ownership, ok bool) {
	i, ok := slices.BinarySearchFunc(v.Shards, shard, func(o Ownership, s string) int { return cmp.Compare(o.Shard, s) })
	if !ok {
		return Ownership{}, false
	}
	return v.Shards[i], true
}

// Member returns the member with the given session. The ok result reports whether there is a live
// member with this session.
func (v *View) Member(id SessionID) (m Member, ok bool) {
	for i := range v.Members {
		if v.Members[i].Session == id {
			return v.Members[i], true
		}
	}
	return Member{}, false
}

// Unowned returns the number of shards that should be served but are not. A shard counts as unowned
// if it has no owner, or if its owner is not alive or is listed in Silent. If this member is not
// trusted, its own shards also count. Shards whose names begin with "_" count as reserved. Tenure
// uses such shards, for example, for the assigner. A reserved shard has no owner after the last
// member that uses it has left. Free locks and shards that are set aside do not count.
//
// In a namespace of up to 17 members, each member notices when any other member becomes silent. In
// a larger namespace, each member watches only its three predecessors. At least one member
// therefore notices each silent member. A member that is not trusted cannot detect silence. If no
// member is trusted, each member counts only its own shards.
func (v *View) Unowned() (shards, reserved int) {
	serves := v.Trusted && v.Err == nil
	for i := range v.Shards {
		o := &v.Shards[i]
		switch {
		case o.Node != "" && !slices.Contains(v.Silent, o.Session) && (serves || o.Session != v.Session):
		case o.Aside != "", o.Session == "" && driver.IsLock(ShardID(o.Shard)):
		case strings.HasPrefix(o.Shard, "_"):
			reserved++
		default:
			shards++
		}
	}
	return shards, reserved
}

package core

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/tenure-go/tenure/core/control"
	"github.com/tenure-go/tenure/core/driver"
)

// View is a snapshot of a namespace as one member knows it. It never changes and is safe for
// concurrent use; callers must not modify its slices. It is as old as the last news from the store.
// It only informs; only a lease authorises work.
type View struct {
	Node    string    // this member's label
	Session SessionID // this member's session; empty before it has joined and while it rejoins
	Trusted bool      // the session was trusted when the snapshot was made
	Err     error     // if not nil: the member is halted, and nothing is granted (ErrStoreChanged)
	// Ineligible is the reason why this member is not eligible (Options.Eligible); empty if it is
	// eligible. For other members, see Member.Ineligible.
	Ineligible string
	// Trouble describes this member's problems that an operator must fix: calls that the store
	// refuses, or a stuck handler. For other members, see Member.Trouble.
	Trouble string
	Leaving bool // a planned stop has begun (Elector.Leave), or Run has ended
	Stopped bool // Run is handing everything back, or has ended
	// CertificateEnd is when the newest client certificate for the store expires; zero without one.
	CertificateEnd time.Time

	Members   []Member    // live members, this one included, by node and session
	Silent    []SessionID // members without a heartbeat for their TTL that are not evicted yet; see Unowned
	Shards    []Ownership // every shard seen or wanted, by name
	Leases    []LeaseInfo // this member's leases, including each whose handler still runs, by shard
	Contended int         // number of shards that this member contends for
	Moves     []Move      // of this member, oldest first: the newest 64 requested and 64 other moves

	// Rules are the operators' rules that this member read last, including expired rules. It is
	// nil until the member knows whether there are any.
	Rules []control.Rule

	// Damaged lists, by key, up to 64 records in the store that cannot be read. It covers the last
	// two Options.Resync, and at least 2 min. DamagedTotal counts all that were found since the
	// start, listed or not.
	Damaged      []*DamagedError
	DamagedTotal int

	gen uint64
}

// Ownership is a shard and its owner.
type Ownership struct {
	Shard   string
	Session SessionID // the session in the shard's record; empty if none
	Token   Token     // of the last lease
	Node    string    // label of the owner; empty if no live member owns the shard

	// Aside is why the shard should have no owner, such as a quarantine. It is empty if the shard
	// should have an owner.
	Aside string
	// AsideUntil is when the shard should have an owner again; zero if never.
	AsideUntil time.Time
}

// LeaseState is the state of one of this member's leases. Each state leads only to later ones:
//
//	starting -> held        the handler is called
//	starting -> returned    asked to stop, or revoked, before that
//	held -> draining        the handler is asked to stop
//	held, draining -> revoked
//	revoked -> stuck        the handler does not return
//	held ... stuck -> returned
//
// The Elector then calls the store, and the lease disappears.
type LeaseState string

// The states of a lease, in their order.
const (
	LeaseStarting LeaseState = "starting" // granted; its handler has not been called yet
	LeaseHeld     LeaseState = "held"     // its handler runs
	LeaseDraining LeaseState = "draining" // its handler was asked to stop
	LeaseRevoked  LeaseState = "revoked"  // may not be used; its handler still runs
	LeaseStuck    LeaseState = "stuck"    // as revoked, beyond the drain budget
	LeaseReturned LeaseState = "returned" // its handler returned; it is being given back
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
	Since time.Time // when it was granted
}

// MoveKind is the kind of a Move.
type MoveKind string

// The moves of a lease.
const (
	MoveGranted MoveKind = "granted"       // Err names the former session, if the shard was taken over
	MoveStopped MoveKind = "asked to stop" // Err is the reason
	MoveRevoked MoveKind = "revoked"       // Err is a *RevokedError
	MoveStuck   MoveKind = "stuck"
	MoveBack    MoveKind = "given back" // its handler has returned Err
)

// Move is a change of one of this member's leases.
type Move struct {
	At    time.Time
	Fence Fence
	Kind  MoveKind
	Err   error
}

// Owner returns the view's entry for a shard. ok is false if the shard was neither seen nor wanted.
// If Node is empty, no live member owns the shard.
func (v *View) Owner(shard string) (o Ownership, ok bool) {
	i, ok := slices.BinarySearchFunc(v.Shards, shard, func(o Ownership, s string) int { return cmp.Compare(o.Shard, s) })
	if !ok {
		return Ownership{}, false
	}
	return v.Shards[i], true
}

// Member returns the member with the given session. ok is false if there is no live member with
// this session.
func (v *View) Member(id SessionID) (m Member, ok bool) {
	for i := range v.Members {
		if v.Members[i].Session == id {
			return v.Members[i], true
		}
	}
	return Member{}, false
}

// Unowned returns the number of shards that should be served but are not. Such a shard has no
// owner, or an owner that is not alive or is in Silent. Its owner may also be this member while
// this member is not trusted. Shards whose names begin with "_" count as reserved. Tenure uses
// them, for example for the assigner. They stay without an owner when the last member that uses
// them leaves. Free locks and shards that are set aside do not count.
//
// In a namespace of up to 17 members, each member sees the silence of all others. In a larger
// namespace, it sees the silence of its three predecessors, so that at least one member sees each
// silence. A member that is not trusted sees no silence. If no member is trusted, each counts only
// its own shards.
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

// Quarantined returns the number of shards that are temporarily set aside. Tenure withholds them
// from all members because their owners keep dying.
func (v *View) Quarantined() (n int) {
	for i := range v.Shards {
		if !v.Shards[i].AsideUntil.IsZero() {
			n++
		}
	}
	return n
}

// Troubled returns the number of members in trouble.
func (v *View) Troubled() (n int) {
	if v.Trouble != "" && v.Session == "" {
		n++
	}
	for i := range v.Members {
		if m := &v.Members[i]; m.Trouble() != "" || v.Trouble != "" && m.Session == v.Session {
			n++
		}
	}
	return n
}

// Stuck returns the shards whose handlers did not return in time.
func (v *View) Stuck() []string {
	var s []string
	for _, l := range v.Leases {
		if l.State == LeaseStuck {
			s = append(s, string(l.Fence.Shard))
		}
	}
	return s
}

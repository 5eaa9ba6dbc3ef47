package core

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/tenure-go/tenure/core/control"
	"github.com/tenure-go/tenure/core/driver"
)

// View is a snapshot of a namespace as one member knows it. It never changes and
// is safe for concurrent use; the slices are not to be modified. It is a
// picture, as old as the last news from the store: it informs, a lease decides.
type View struct {
	Node    string    // this member's label
	Session SessionID // this member's session; empty before it joined, and while it joins again
	Trusted bool      // the session was trusted when the snapshot was made
	Err     error     // not nil: halted, nothing is granted any more (ErrStoreChanged)
	// Ineligible is why this member is not eligible (Options.Eligible); empty if it is. That
	// of others: Member.Ineligible.
	Ineligible string
	// Trouble is what somebody has to mend about this member: calls that the store refuses, or a
	// handler that is stuck. That of others, so far as it concerns them: Member.Trouble.
	Trouble string
	Leaving bool // a planned stop has begun (Elector.Leave), or Run has ended
	Stopped bool // Run hands everything back, or has ended
	// CertificateEnd is the end of the client certificate to the store that was read last; zero without one.
	CertificateEnd time.Time

	Members   []Member    // that live, this one included, by node and session
	Silent    []SessionID // of Members: no heartbeat was seen for the TTL, and nobody evicted them yet; see Unowned
	Shards    []Ownership // every shard seen or wanted, by name
	Leases    []LeaseInfo // own leases, those included whose handler still runs, by shard
	Contended int         // shards that this member contends for
	Moves     []Move      // of this member, oldest first: the newest 64 that were asked for, and 64 others

	// Rules are the operators' rules that this member read last, those included that have
	// expired; nil until it knows whether there are any.
	Rules []control.Rule

	// Damaged are records of the store that cannot be read, up to 64, by key: those met
	// within the last two Options.Resync, and at least 2 min. DamagedTotal counts all
	// that were found since the start, those included that are not listed.
	Damaged      []*DamagedError
	DamagedTotal int

	gen uint64
}

// Ownership is a shard and who owns it.
type Ownership struct {
	Shard   string
	Session SessionID // that the shard's record names; empty: nobody
	Token   Token     // of the last lease
	Node    string    // label of the owner; empty if nobody lives who owns it
	Aside   Aside     // zero: the shard is meant to have an owner
}

// Aside says why a shard is not meant to have an owner: see Elector.SetAside.
type Aside struct {
	Why   string    // empty: the shard is not set aside
	Until time.Time // when it is meant to have an owner again, as in quarantine; zero: never
}

// LeaseState says how far a lease of one's own is. Each state leads to later ones only:
//
//	starting -> held        the handler is called
//	starting -> returned    asked to stop, or revoked, before that
//	held -> draining        the handler is asked to stop
//	held, draining -> revoked
//	revoked -> stuck        the handler does not return
//	held ... stuck -> returned
//
// Then the store is asked, and the lease is gone.
type LeaseState string

// The states of a lease, in their order.
const (
	LeaseStarting LeaseState = "starting" // granted; its handler was not called yet
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

// running reports whether the handler was called and has not returned.
func (s LeaseState) running() bool { return s != LeaseStarting && s != LeaseReturned }

// LeaseInfo is a lease of one's own.
type LeaseInfo struct {
	Fence Fence
	State LeaseState
	Since time.Time // when it was granted
}

// MoveKind says what a Move was.
type MoveKind string

// The moves of a lease.
const (
	MoveGranted MoveKind = "granted"       // Err says from whom, if it was taken over
	MoveStopped MoveKind = "asked to stop" // Err says why
	MoveRevoked MoveKind = "revoked"       // Err is a *RevokedError
	MoveStuck   MoveKind = "stuck"
	MoveBack    MoveKind = "given back" // its handler has returned; Err is what it returned
)

// Move is something that happened to one of this member's leases.
type Move struct {
	At    time.Time
	Fence Fence
	Kind  MoveKind
	Err   error
}

// Owner returns a shard's entry; ok is false if the shard was neither seen nor
// wanted. To whom Node is empty, nobody answers for the shard at present.
func (v *View) Owner(shard string) (o Ownership, ok bool) {
	i, ok := slices.BinarySearchFunc(v.Shards, shard, func(o Ownership, s string) int { return cmp.Compare(o.Shard, s) })
	if !ok {
		return Ownership{}, false
	}
	return v.Shards[i], true
}

// Member returns the member with that session; ok is false if it does not live.
func (v *View) Member(id SessionID) (m Member, ok bool) {
	for i := range v.Members {
		if v.Members[i].Session == id {
			return v.Members[i], true
		}
	}
	return Member{}, false
}

// Unowned counts the shards that nobody serves, though somebody should: without an owner, of an owner that
// does not live or is in Silent, or of this member while it is not trusted. Those whose name begins with "_" are counted
// as reserved: they are Tenure's own, such as the assigner's, and stay without an
// owner when the last member that uses them leaves. A lock that is free counts as neither.
//
// Up to 17 members, each sees the silence of all others; in a larger namespace it
// sees that of its three predecessors, so that some member sees each. A member that is
// not trusted sees no silence, so where none is, each counts its own shards only.
func (v *View) Unowned() (shards, reserved int) {
	serves := v.Trusted && v.Err == nil
	for i := range v.Shards {
		o := &v.Shards[i]
		switch {
		case o.Node != "" && !slices.Contains(v.Silent, o.Session) && (serves || o.Session != v.Session):
		case o.Aside.Why != "", o.Session == "" && driver.IsLock(ShardID(o.Shard)):
		case strings.HasPrefix(o.Shard, "_"):
			reserved++
		default:
			shards++
		}
	}
	return shards, reserved
}

// Quarantined counts the shards that are set aside for a time: Tenure withholds them from all
// members, since their owners die.
func (v *View) Quarantined() (n int) {
	for i := range v.Shards {
		if !v.Shards[i].Aside.Until.IsZero() {
			n++
		}
	}
	return n
}

// Troubled counts the members in trouble.
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

// Stuck returns the shards whose handler did not return in time.
func (v *View) Stuck() []string {
	var s []string
	for _, l := range v.Leases {
		if l.State == LeaseStuck {
			s = append(s, string(l.Fence.Shard))
		}
	}
	return s
}

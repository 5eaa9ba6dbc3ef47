// Package seam defines the calls of a core.Elector that only packages of this module make.
package seam

import (
	"context"
	"time"

	"github.com/tenure-go/tenure/core/driver"
)

// Key is the argument of core.Elector.Internal, which no other module can make.
type Key struct{ _ int }

// MaxContended is the largest number of shards for which one member contends. A member may have
// to serve all of them. Each shard that it owns needs a goroutine, and adds to the store's work
// for each full read.
const MaxContended = 200_000

// Preference names the sessions that claim a shard first when it is free: First, or Second if
// First does not live or does not act.
type Preference struct {
	Shard         string
	First, Second driver.SessionID // either may be empty
}

// Aside is the reason why a shard should have no owner.
type Aside struct {
	Why   string    // empty if the shard is not set aside
	Until time.Time // when it should have an owner again, for example after a quarantine; zero if never
}

// Elector is a core.Elector.
type Elector interface {
	// Prefer sets the order in which this member expects members to claim shards (C9). First
	// come the named sessions, then the others by priority, then by rendezvous hash. It is
	// advice, whether or not this member contends for the shards, and lasts until the next call
	// for the same shard. If members have different preferences, they only claim more often
	// than needed. Electors ignore operators' rules (package control) about a shard with a
	// preference; its assigner obeys them. The error is ErrInvalid for a name outside the
	// grammar.
	Prefer(prefs ...Preference) error
	// SetAside replaces the set of shards that currently should have no owner. Views show the
	// reason of each and do not count it as unowned. Nothing else changes. The caller must not
	// modify the map afterwards.
	SetAside(reasons map[string]Aside)
	// Stay undoes Leave. It does not prevent Run from ending.
	Stay()
	// WaitOwner waits until a live member owns the shard, as far as this member knows, and
	// reports whether that is this member. Unlike WaitView, it makes no snapshot. Its errors
	// are those of WaitView.
	WaitOwner(ctx context.Context, shard string) (mine bool, err error)
	// News returns the age of the store's newest answer to Observe, or to a heartbeat unless
	// Observe fails repeatedly. The result fresh reports whether the age is at most a TTL. A
	// View without fresh news may name owners that have lost their shards. A member that
	// contends for nothing sends no heartbeats. Its news stays fresh for two more Resync
	// periods.
	News() (age time.Duration, fresh bool)
}

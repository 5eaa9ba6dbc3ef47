// Package seam defines the methods of a core.Elector that only packages of this module may call.
package seam

import (
	"context"
	"time"

	"github.com/tenure-go/tenure/core/driver"
)

// Key is the argument of core.Elector.Internal and of conformance.Harness.Internal. No other module
// can create a Key.
type Key struct{ _ int }

// MaxContended is the maximum number of shards for which one member contends. A member may have to
// serve all of them. Each shard that a member owns needs a goroutine, and makes each full read more
// expensive for the store.
const MaxContended = 200_000

// Preference names the sessions that claim a shard first when the shard is free. Second claims the
// shard only if First is not alive or does not act.
type Preference struct {
	Shard         string
	First, Second driver.SessionID // either may be empty
}

// Aside is the reason why a shard should have no owner.
type Aside struct {
	Why   string    // empty if the shard is not set aside
	Until time.Time // when the shard may have an owner again, such as after a quarantine; zero if never
}

// Elector is a core.Elector.
type Elector interface {
	// Prefer sets the order in which this member expects members to claim shards (C9). The named
	// sessions come first, and then the other sessions by priority and rendezvous hash. The order
	// is only advice. It applies even if this member does not contend for the shards, and lasts
	// until the next call for the same shard. If members have different preferences, the only
	// effect is unnecessary claims. If a shard has a preference, Electors ignore operators' rules
	// (package control) about the shard, because the assigner obeys those rules. If a name is
	// invalid, the error is ErrInvalid.
	Prefer(prefs ...Preference) error
	// SetAside replaces the set of shards that should currently have no owner. Views show the
	// reasons, and do not count these shards as unowned. SetAside has no other effect. The caller
	// must not modify the map afterwards.
	SetAside(reasons map[string]Aside)
	// Stay undoes Leave. Stay does not prevent Run from ending.
	Stay()
	// Done returns a channel that is closed when Run has ended. After Run has ended, no lease is
	// granted.
	Done() <-chan struct{}
	// WaitOwner waits until a live member owns the shard, as far as this member knows, and reports
	// whether this member is the owner. WaitOwner returns the same errors as WaitView, but makes no
	// snapshot.
	WaitOwner(ctx context.Context, shard string) (mine bool, err error)
	// News returns the age of the store's newest answer to an Observe call or, unless Observe fails
	// repeatedly, to a heartbeat. The result fresh reports whether the age is at most a TTL. A View
	// without fresh news may name owners that have lost their shards. A member that contends for no
	// shard sends no heartbeats, so its news stays fresh for an additional two Resync periods.
	News() (age time.Duration, fresh bool)
}

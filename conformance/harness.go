package conformance

import (
	"context"
	"time"

	"github.com/tenure-go/tenure/core/driver"
)

// longRun is the environment variable that makes Test set [Harness.Long].
const longRun = "TENURE_CONFORMANCE_LONG"

// Harness describes how the suite reaches one backend. Name and New are required.
type Harness struct {
	// Name is the backend's name in the report.
	Name string

	// Version is the store's version as it reports it, such as "PostgreSQL 15.14". Options are the
	// options of the backend or the store that differ from the defaults. Both are for the report,
	// may be empty, and must contain no secrets.
	Version, Options string

	// New makes a fresh, empty namespace for one case, and cleans up with t.Cleanup. Other cases
	// may use the same store at the same time. New is called once per case, from several goroutines
	// unless Serial is set. If New fails t, the case fails.
	New func(t T) *Store

	// Serial runs the cases in sequence. Default: in parallel.
	Serial bool

	// Long multiplies the interleavings of the racing cases by about 20, and the restarts under new
	// node labels by 50. Default: the short form, meant for every run.
	Long bool

	// Timeout limits each case. A case that exceeds it fails with the stacks of all goroutines.
	// Default 2 min, so that a busy machine is not taken for a hang, or 10 min with Long. A case
	// waits a sixth of Timeout for something that should happen immediately. A case about a
	// duration is skipped as "machine too slow to tell" if a ping of the store was also slow.
	Timeout time.Duration

	// Skip maps cases ("Area/Property") that this store cannot pass to the reason, which the
	// report shows. An unknown name or an empty reason fails the run.
	Skip map[string]string
}

// Store is one namespace of the store under test, and the faults that the harness can cause. Open
// is required. Every other function may be nil. The cases that need it are then skipped, and the
// report gives that reason.
//
// A returned Backend belongs to the suite, which closes it. Several goroutines call the
// functions.
type Store struct {
	// Open opens another Backend on this namespace, as another process would. The Backends share
	// nothing that two processes would not share. The first call creates the namespace. ctx is
	// cancelled when Open has returned (X1).
	Open func(ctx context.Context) (driver.Backend, error)

	// OpenOther is like Open, but through another door of the same store: another node, or another
	// member of its cluster. Every second Backend of a case then uses it, so that no case relies
	// on the knowledge of one node.
	OpenOther func(ctx context.Context) (driver.Backend, error)

	// OpenExisting opens another Backend with the option Create off (I1).
	OpenExisting func(ctx context.Context) (driver.Backend, error)

	// OpenNamespace creates and opens another namespace of the same store. Its name is this one's
	// followed by suffix, such as "/b" or "0".
	OpenNamespace func(ctx context.Context, suffix string) (driver.Backend, error)

	// OpenLying opens a Backend on a store that ignores the conditions of writes. It must fail
	// (P1).
	OpenLying func(ctx context.Context) (driver.Backend, error)

	// OpenFaulty opens another Backend whose traffic goes through a Wire.
	OpenFaulty func(ctx context.Context) (driver.Backend, *Wire, error)

	// OpenSeveral opens another Backend that reaches several servers of the store, each through a
	// separate Wire with DropRequests.
	OpenSeveral func(ctx context.Context) (driver.Backend, []*Wire, error)

	// Calls counts the calls to the store of all Backends of this namespace so far.
	Calls func() Calls

	// Compact makes the store forget the history that an earlier cursor needs to continue.
	Compact func(ctx context.Context) error

	// Tamper writes to the store without the driver, as another client or a broken one would. name
	// is a shard or, for a member's record, a session. If the store's schema makes a tampering
	// impossible, the error is errors.ErrUnsupported.
	Tamper func(ctx context.Context, what Tampering, name string) error

	// Wipe removes everything in the namespace, including its identity, while Backends are
	// open.
	Wipe func(ctx context.Context) error

	// Snapshot saves the state of the namespace. restore brings it back while Backends are open,
	// together with the store's revision at that time.
	Snapshot func(ctx context.Context) (restore func(context.Context) error, err error)

	// Fork makes the store report another history than before, as if a standby had been promoted.
	// It is nil for a store without an incarnation (I2).
	Fork func(ctx context.Context) error

	// Isolate permanently cuts off the server that Backends use from all servers that can take
	// over. The server continues, and open Backends stay on it. promote makes one of the other
	// servers take over and accept writes. From then on, Open leads to that server.
	Isolate func(ctx context.Context) (promote func(context.Context) error, err error)

	// Narrow makes the store accept only shorter requests than when the Backends were opened,
	// until the returned function is called. The store still accepts a write of 4 KiB. Backends
	// may fail at first, as after Restart. An error that matches errors.ErrUnsupported skips the
	// case.
	Narrow func(ctx context.Context) (widen func(context.Context) error, err error)

	// Deny takes away a right that the user of open Backends needs to commit, or makes the store
	// read-only. This lasts until the returned function is called (E5).
	Deny func(ctx context.Context) (allow func(context.Context) error, err error)

	// RaiseFloor does what an operator does after a restore. Every token granted from then on is
	// greater than above.
	RaiseFloor func(ctx context.Context, above driver.Token) error

	// Guards are the fences that the backend offers in addition to Commit.
	Guards []Guard

	// Restart stops the store's process and starts it on the same data. Backends opened before may
	// fail until the store is back, and must then work again.
	Restart func(ctx context.Context) error
}

// Calls counts round trips to the store by kind. A transaction of any size counts
// once.
type Calls struct {
	Reads  int64 // answered without a wait, changing nothing; including polls
	Writes int64 // that change the store, or would have changed it
	Waits  int64 // that block until something changes: watches, long polls
}

// Tampering is a kind of write that bypasses the driver.
type Tampering string

// These are the kinds of tampering.
const (
	// CorruptShard replaces a shard's record with bytes that do not decode.
	CorruptShard Tampering = "corrupt shard"
	// CorruptMember replaces a member's data about itself with bytes that do not decode.
	CorruptMember Tampering = "corrupt member"
	// OversizeShard replaces a shard's record with a mebibyte of data, or as much as the store
	// accepts.
	OversizeShard Tampering = "oversize shard"
	// ImpossibleShard gives a shard's record a token that was never granted.
	ImpossibleShard Tampering = "impossible shard"
	// CorruptHistory makes a shard free, and replaces the history of its leases (R3).
	CorruptHistory Tampering = "corrupt history"
	// CorruptHead replaces a shard's head with bytes that do not decode.
	CorruptHead Tampering = "corrupt head"
	// CorruptEntry replaces the record of a shard's log that ends with entry 1 with bytes that
	// do not decode.
	CorruptEntry Tampering = "corrupt entry"
	// RemoveEntry removes the record of a shard's log that ends with entry 1.
	RemoveEntry Tampering = "remove entry"
	// OddItem writes an item of a shard under the key "k2#x", which no item can have.
	OddItem Tampering = "odd item"
	// CorruptBeat replaces the record that a session's heartbeats change.
	CorruptBeat Tampering = "corrupt heartbeat"
	// RewriteShard writes a shard's record again, unchanged.
	RewriteShard Tampering = "rewrite shard"
	// RemoveShard removes the record of a shard's owner, which is otherwise permanent.
	RemoveShard Tampering = "remove shard"
)

// Wire is the network between one Backend and the store: a proxy, or a decorator of the store's
// client. Each function may be nil. It starts a fault for later requests, and returns the
// function that ends the fault. The fault applies to heartbeats, blocked calls and all other
// calls.
type Wire struct {
	// DropRequests loses requests. They never reach the store, and get no answer.
	DropRequests func() (end func())

	// DropReplies loses replies. The store acts on the request, and the caller gets no answer until
	// its context ends. If the harness can tell, as for Hold, it drops only replies to requests
	// that would change the store.
	DropReplies func() (end func())

	// Hold keeps requests back. If the harness can tell, it keeps back only requests that would
	// change the store. So a call of several steps gets to the decisive one. release delivers them
	// in order, including requests that their callers have given up. It returns when they have
	// reached the store or, if that cannot be observed, have been sent.
	Hold func() (release func())

	// Duplicate delivers every request twice in succession, and returns the first reply.
	//
	// Only a harness that knows where requests begin and end can do this. Examples are a
	// decorator of the store's client, or a proxy that can frame a protocol of independent
	// requests. HTTP and gRPC requests are independent. ZooKeeper requests have a number that
	// the connection counts, so a proxy must drop the second answer.
	//
	// Duplicate stays nil if a request is part of a connection's state. An SQL transaction, for
	// example, is a conversation. A statement that arrives twice is a second statement, and its
	// reply would be taken for the reply to the next one. On such a wire, no second delivery can
	// arrive late either. Commit/RepeatedWriteRefused shows the effect of a write that is sent
	// twice.
	Duplicate func() (end func())

	// Cut breaks the connection. Calls in flight and new calls fail with an error. From then on,
	// they do not reach the store.
	Cut func() (heal func())
}

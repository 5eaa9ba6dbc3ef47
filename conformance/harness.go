package conformance

import (
	"context"
	"time"

	"github.com/tenure-go/tenure/core/driver"
)

// LongRun is the environment variable that has Test set [Harness.Long].
const LongRun = "TENURE_CONFORMANCE_LONG"

// Harness describes how the suite reaches one backend. Name and New are required.
type Harness struct {
	// Name of the backend, for the report.
	Name string

	// Version of the store as it reports itself, such as "PostgreSQL 15.14", and
	// Options that the backend or the store was given beside the defaults, for the
	// report. Both may be empty. No secrets.
	Version, Options string

	// New makes a fresh, empty namespace for one case, in a store that other
	// cases may use at the same time, and cleans up with t.Cleanup. It is called
	// once per case, from several goroutines unless Serial is set. Failing t fails
	// the case.
	New func(t T) *Store

	// Serial runs one case after the other. The default is in parallel.
	Serial bool

	// Long multiplies the interleavings of the racing cases by about 20, and the
	// restarts under new node labels by 50. The default is the short form, meant for
	// every run.
	Long bool

	// Timeout bounds each case; one that has not ended by then fails with the
	// stacks of all goroutines. Default 2 min, so that a busy machine is not taken for
	// a hang, or 10 min with Long. A case waits a sixth of it for what should happen at once. A
	// case whose subject is a time is skipped as "machine too slow to tell" if a ping of the
	// store was slow as well.
	Timeout time.Duration

	// Skip names cases ("Area/Property") that this store cannot pass, with the
	// reason, which the report lists. A name that does not exist, and an empty
	// reason, fail the run.
	Skip map[string]string
}

// Store is one namespace of the store under test, and the faults that the
// harness can cause. Open is required. Every other function may be nil: the
// cases that need it are skipped, with that reason.
//
// A returned Backend belongs to the suite, which closes it. The functions are
// called from several goroutines.
type Store struct {
	// Open opens another Backend on this namespace, as another process would:
	// without anything shared inside the process that two processes would not
	// share. The first call creates the namespace. ctx is cancelled right after
	// Open returned (X1).
	Open func(ctx context.Context) (driver.Backend, error)

	// OpenOther is Open by another door of the same store: another node, or another member of its cluster. Every second
	// Backend of a case then goes through it, so that no case relies on what one node alone knows.
	OpenOther func(ctx context.Context) (driver.Backend, error)

	// OpenExisting opens another Backend with the option Create off (I1).
	OpenExisting func(ctx context.Context) (driver.Backend, error)

	// OpenNamespace creates and opens another namespace of the same store, named
	// as this one followed by suffix, such as "/b" or "0".
	OpenNamespace func(ctx context.Context, suffix string) (driver.Backend, error)

	// OpenLying opens a Backend on a store that ignores the conditions of writes.
	// Opening must fail (P1).
	OpenLying func(ctx context.Context) (driver.Backend, error)

	// OpenFaulty opens another Backend whose traffic goes through a Wire.
	OpenFaulty func(ctx context.Context) (driver.Backend, *Wire, error)

	// OpenSeveral opens another Backend that reaches several servers of the store,
	// each through its own Wire, with DropRequests.
	OpenSeveral func(ctx context.Context) (driver.Backend, []*Wire, error)

	// Calls counts the calls to the store of all Backends of this namespace so far.
	Calls func() Calls

	// Compact makes the store forget the history that a cursor taken before could
	// be continued from.
	Compact func(ctx context.Context) error

	// Tamper writes to the store past the driver, as a foreign or broken client
	// would. name is a shard or, for a member's record, a session. A tampering
	// that the store's schema makes impossible answers errors.ErrUnsupported.
	Tamper func(ctx context.Context, what Tampering, name string) error

	// Wipe loses everything in the namespace, its identity included, under open
	// Backends.
	Wipe func(ctx context.Context) error

	// Snapshot remembers the state of the namespace; restore brings it back under
	// open Backends, together with the store's revision at that time.
	Snapshot func(ctx context.Context) (restore func(context.Context) error, err error)

	// Fork makes the store say that its history is another than before, as one does
	// after a standby was promoted: nil where a store has no incarnation (I2).
	Fork func(ctx context.Context) error

	// Isolate cuts the server that Backends use off from all that can take over from it, for
	// good: it goes on by itself, and open Backends stay on it. promote has one of the others
	// take over, with what it needs to be written to; Open leads there from then on.
	Isolate func(ctx context.Context) (promote func(context.Context) error, err error)

	// Narrow makes the store take less in one request than when Backends were opened, but
	// at least one write of 4 KiB, until the function that it returns is called. Backends may
	// fail at first, as after Restart. An error that matches errors.ErrUnsupported skips the case.
	Narrow func(ctx context.Context) (widen func(context.Context) error, err error)

	// Deny takes a right to commit away from the user of open Backends, or makes the store
	// read-only, until the function that it returns is called (E5).
	Deny func(ctx context.Context) (allow func(context.Context) error, err error)

	// RaiseFloor does what an operator does after a restore: every token granted from
	// then on is greater than above.
	RaiseFloor func(ctx context.Context, above driver.Token) error

	// Guards are the fences that the backend offers beside Commit.
	Guards []Guard

	// Restart stops the store's process and starts it on the same data. Backends
	// opened before may fail until it is back, and must then work on.
	Restart func(ctx context.Context) error
}

// Calls counts round trips to the store by kind. A transaction of any size counts
// once.
type Calls struct {
	Reads  int64 // answered at once, changing nothing; polls included
	Writes int64 // that change the store, or would have
	Waits  int64 // that block until something changed: watches, long polls
}

// Tampering is a kind of write past the driver.
type Tampering string

// The kinds of tampering.
const (
	// CorruptShard replaces a shard's record by bytes that do not decode.
	CorruptShard Tampering = "corrupt shard"
	// CorruptMember replaces a member's data about itself in the same way.
	CorruptMember Tampering = "corrupt member"
	// OversizeShard replaces a shard's record by a mebibyte of bytes, or as much as
	// the store takes.
	OversizeShard Tampering = "oversize shard"
	// ImpossibleShard gives a shard's record a token that was never granted.
	ImpossibleShard Tampering = "impossible shard"
	// CorruptHead replaces a shard's head in the same way as CorruptShard its record.
	CorruptHead Tampering = "corrupt head"
	// CorruptEntry does so with the record of a shard's log that ends with entry 1.
	CorruptEntry Tampering = "corrupt entry"
	// RemoveEntry removes that record.
	RemoveEntry Tampering = "remove entry"
	// CorruptBeat replaces the record that a session's heartbeats change.
	CorruptBeat Tampering = "corrupt heartbeat"
	// RewriteShard writes a shard's record again as it is.
	RewriteShard Tampering = "rewrite shard"
	// RemoveShard removes a shard's record of its owner, which is permanent.
	RemoveShard Tampering = "remove shard"
)

// Wire is the network between one Backend and the store; a proxy, or a decorator
// of the store's client. Each function may be nil. Each starts a fault for the
// requests sent from then on, and returns the function that ends it. Heartbeats,
// blocked calls and everything else share the fault.
type Wire struct {
	// DropRequests loses requests: they never reach the store, and nothing is
	// answered.
	DropRequests func() (end func())

	// DropReplies loses replies: the store acts on the request, and the caller
	// hears nothing, until its context ends. Only of requests that would change the
	// store, if the harness knows them, as for Hold.
	DropReplies func() (end func())

	// Hold keeps requests back: only those that would change the store, if the
	// harness knows them, so that a call of several steps gets to the one that
	// matters. release delivers them, in order, also those whose caller has given
	// up since, and returns when they have reached the store or, where that cannot
	// be observed, have been sent.
	Hold func() (release func())

	// Duplicate delivers every request twice, one right after the other, and the
	// first one's reply.
	//
	// Only a harness that knows the boundaries of requests can do it: a decorator
	// of the store's client, or a proxy with a framer for a protocol in which a
	// request stands for itself. It stays nil where a request is part of a
	// connection's state: an SQL transaction is a conversation, in which a
	// statement that comes twice is another statement, and its reply would be taken
	// for the next one's. There a late second delivery does not exist on the wire
	// either, and Commit/RepeatedWriteRefused shows the effect of the same write
	// sent twice. HTTP and gRPC requests stand for themselves; ZooKeeper's carry a
	// number that the connection counts, so that a proxy has to drop the second
	// answer.
	Duplicate func() (end func())

	// Cut breaks the connection: calls in flight and new ones fail with an error,
	// without reaching the store from then on.
	Cut func() (heal func())
}

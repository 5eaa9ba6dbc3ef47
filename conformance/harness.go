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

	// Version is the version that the store reports, such as "PostgreSQL 15.14". Options lists the
	// backend and store options that differ from the defaults. The report shows both fields. They
	// may be empty, and must not contain secrets.
	Version, Options string

	// New creates a fresh, empty namespace for one case, and cleans up with t.Cleanup. Other cases
	// may use the same store at the same time. The suite calls New once per case, from several
	// goroutines unless Serial is set. If New marks t as failed, the case fails.
	New func(t T) *Store

	// Serial makes the suite run the cases in sequence. By default, the cases run in parallel.
	Serial bool

	// Long multiplies the number of interleavings in race cases by about 20, and the number of
	// restarts under new node labels by 50. The default is the short form, which is meant for every
	// run.
	Long bool

	// Timeout limits each case. A case that exceeds Timeout fails, and the report shows the stacks
	// of all goroutines. The default is 2 min, or 10 min with Long. Even on a busy machine, a case
	// should not reach this limit. A case waits up to a sixth of Timeout for an event that should
	// happen immediately. If pings of the store were slow too, a case that checks a duration is
	// skipped as "machine too slow to tell".
	Timeout time.Duration

	// Skip maps each case ("Area/Property") that this store cannot pass to a reason for the report.
	// An unknown name or an empty reason fails the run.
	Skip map[string]string
}

// Store describes one namespace of the store under test, and the faults that the harness can cause.
// Open is required. Any other function may be nil. If a function is nil, the suite skips the cases
// that need it, and reports why.
//
// The suite closes the Backends that the functions return. Several goroutines call the functions
// concurrently.
type Store struct {
	// Open opens another Backend on this namespace, as another process would. The Backends share
	// nothing that two processes would not share. The first call creates the namespace. The suite
	// cancels ctx when Open has returned (X1).
	Open func(ctx context.Context) (driver.Backend, error)

	// OpenOther is like Open, but uses another door of the same store, such as another node of its
	// cluster. If OpenOther is set, every second Backend of a case uses that door, so no case
	// relies on information that only one node has.
	OpenOther func(ctx context.Context) (driver.Backend, error)

	// OpenExisting opens another Backend without the option Create (I1).
	OpenExisting func(ctx context.Context) (driver.Backend, error)

	// OpenNamespace creates and opens another namespace of the same store. The other namespace's
	// name is this namespace's name followed by suffix, such as "/b" or "0".
	OpenNamespace func(ctx context.Context, suffix string) (driver.Backend, error)

	// OpenLying tries to open a Backend on a store that ignores write conditions. The call must
	// return an error (P1).
	OpenLying func(ctx context.Context) (driver.Backend, error)

	// OpenFaulty opens another Backend whose traffic goes through a Wire.
	OpenFaulty func(ctx context.Context) (driver.Backend, *Wire, error)

	// OpenSeveral opens another Backend that reaches several servers of the store, each through a
	// separate Wire with DropRequests.
	OpenSeveral func(ctx context.Context) (driver.Backend, []*Wire, error)

	// Calls returns the number of calls that all Backends of this namespace have made to the store.
	Calls func() Calls

	// Compact makes the store discard the history that an earlier cursor needs to continue.
	Compact func(ctx context.Context) error

	// Tamper writes to the store without the driver, as a different or broken client would. The
	// call affects the named shard or, for a member's record, the named session. It returns
	// errors.ErrUnsupported if the store's schema prevents this kind of tampering.
	Tamper func(ctx context.Context, what Tampering, name string) error

	// Wipe removes everything in the namespace, including its identity, while Backends are
	// open.
	Wipe func(ctx context.Context) error

	// Snapshot saves the namespace's state and the store's revision. It returns a function that
	// restores both while Backends are open.
	Snapshot func(ctx context.Context) (restore func(context.Context) error, err error)

	// Fork makes the store report a different history, as after the promotion of a standby. Fork is
	// nil for a store without an incarnation (I2).
	Fork func(ctx context.Context) error

	// Isolate permanently cuts off the server that Backends use from all servers that can take
	// over. The isolated server continues to run, and open Backends stay connected to it. The
	// returned function makes one of the other servers take over and accept writes. After this
	// function has returned, Open connects to that server.
	Isolate func(ctx context.Context) (promote func(context.Context) error, err error)

	// Narrow makes the store accept only shorter requests until the returned function is called.
	// The narrowed store still accepts a 4 KiB write. As after Restart, Backends may fail at first.
	// If the error matches errors.ErrUnsupported, the case is skipped.
	Narrow func(ctx context.Context) (widen func(context.Context) error, err error)

	// Deny revokes a permission that the user of open Backends needs for commits, or makes the
	// store read-only. The returned function undoes this change (E5).
	Deny func(ctx context.Context) (allow func(context.Context) error, err error)

	// RaiseFloor sets a floor that every later token exceeds, as operators do after a restore.
	RaiseFloor func(ctx context.Context, above driver.Token) error

	// Guards are the fences that the backend provides in addition to Commit.
	Guards []Guard

	// Restart stops the store's process and starts it again on the same data. Open Backends may
	// fail until the store is back, but must then work again.
	Restart func(ctx context.Context) error
}

// Calls counts round trips to the store by kind. A transaction of any size counts as one call.
type Calls struct {
	Reads  int64 // calls, including polls, that neither wait nor change anything
	Writes int64 // calls that change the store, or try to
	Waits  int64 // calls that block until something changes: watches and long polls
}

// Tampering is a kind of write that bypasses the driver.
type Tampering string

// The kinds of tampering.
const (
	// CorruptShard replaces a shard's record with bytes that do not decode.
	CorruptShard Tampering = "corrupt shard"
	// CorruptMember replaces the data that a member published about itself with bytes that do not
	// decode.
	CorruptMember Tampering = "corrupt member"
	// OversizeShard replaces a shard's record with a mebibyte of data, or with as much as the store
	// accepts.
	OversizeShard Tampering = "oversize shard"
	// ImpossibleShard gives a shard's record a token that was never granted.
	ImpossibleShard Tampering = "impossible shard"
	// CorruptHistory frees a shard and replaces its lease history (R3).
	CorruptHistory Tampering = "corrupt history"
	// CorruptHead replaces a shard's head with bytes that do not decode.
	CorruptHead Tampering = "corrupt head"
	// CorruptEntry replaces the record that ends with entry 1 of a shard's log with bytes that do
	// not decode.
	CorruptEntry Tampering = "corrupt entry"
	// RemoveEntry removes the record that ends with entry 1 of a shard's log.
	RemoveEntry Tampering = "remove entry"
	// OddItem writes an item of a shard under "k2#x", which is not a valid key.
	OddItem Tampering = "odd item"
	// CorruptBeat replaces the record that a session's heartbeats change.
	CorruptBeat Tampering = "corrupt heartbeat"
	// RewriteShard writes an unchanged copy of a shard's record.
	RewriteShard Tampering = "rewrite shard"
	// RemoveShard removes the record of a shard's owner, which is otherwise permanent.
	RemoveShard Tampering = "remove shard"
)

// Wire is the network between one Backend and the store, such as a proxy or a decorator of the
// store's client. Each function may be nil. A function starts a fault for later requests, including
// heartbeats and blocked calls, and returns a function that ends the fault.
type Wire struct {
	// DropRequests loses requests. A lost request never reaches the store and gets no answer.
	DropRequests func() (end func())

	// DropReplies loses replies. The store acts on the request, but the caller gets no answer
	// before its context ends. If the harness can identify requests that would change the store, it
	// drops only the replies to these requests.
	DropReplies func() (end func())

	// Hold holds requests back. If the harness can identify requests that would change the store,
	// it holds back only these requests. A call with several steps can then reach its decisive
	// step. The returned function delivers the requests in order, including those that their
	// callers have abandoned. It returns when the requests have reached the store or, if the
	// harness cannot observe their arrival, when they have been sent.
	Hold func() (release func())

	// Duplicate delivers every request twice in succession, and returns the first reply.
	//
	// Only a harness that knows where requests begin and end can duplicate them. Such a harness is
	// a decorator of the store's client, or a proxy that parses a protocol of independent requests.
	// HTTP and gRPC requests are independent. ZooKeeper numbers the requests of a connection, so a
	// proxy must drop the second answer.
	//
	// If a request is part of a connection's state, Duplicate must be nil. An SQL transaction, for
	// example, is a conversation. The server would execute a duplicated statement twice, and the
	// client would mistake the second reply for the reply to the next statement. On a stateful
	// connection, a second delivery cannot arrive late either. Commit/RepeatedWriteRefused shows
	// the effect of a write that is sent twice.
	Duplicate func() (end func())

	// Cut cuts the connection. Calls in progress fail with an error, and new calls fail without
	// reaching the store.
	Cut func() (heal func())
}

package engine

import "context"

// Store runs this package's transactions on one database product. All methods are safe for
// concurrent use.
//
// After a failure that certainly applied nothing, a Store may run the function again. The function
// must use only the context that it receives. If the function returns an error, the Store rolls
// back the transaction and returns that error. The Store first classifies database errors (rule
// E1). If the transaction was certainly not applied, the error matches ErrRetry. If the outcome is
// unknown, the error matches no sentinel. If the caller's context ends, the method returns promptly
// (X1). If the transaction had not begun, the method returns ErrRetry. Otherwise, the outcome is
// unknown.
type Store interface {
	// WriteData runs fn in a write transaction on the data tables.
	WriteData(ctx context.Context, fn func(ctx context.Context, data *Tx) error) error

	// WriteRoster runs fn in a write transaction on the roster's tables. WriteRoster does not wait
	// for WriteData (E4).
	WriteRoster(ctx context.Context, fn func(ctx context.Context, roster *Tx) error) error

	// WriteBeat is like WriteRoster, but for a heartbeat. A crash that also ends all members may
	// undo the writes of WriteBeat.
	WriteBeat(ctx context.Context, fn func(ctx context.Context, roster *Tx) error) error

	// WriteOwners runs fn in a write transaction on the data tables. From the call of roster until
	// the commit, the roster rows that fn reads do not change (A1). The function must not write to
	// the roster, except in a store with an incarnation (I2).
	WriteOwners(ctx context.Context, fn func(ctx context.Context, data *Tx, roster func() (*Tx, error)) error) error

	// ReadData runs fn on one snapshot of the data tables.
	ReadData(ctx context.Context, fn func(ctx context.Context, data *Tx) error) error

	// ReadRoster runs fn on one snapshot of the roster's tables.
	ReadRoster(ctx context.Context, fn func(ctx context.Context, roster *Tx) error) error

	// Read runs fn, which makes single reads outside any transaction. Each read sees all earlier
	// commits. Get, List and polling use Read. A barrier's write, which is a separate transaction,
	// also uses Read.
	Read(ctx context.Context, fn func(ctx context.Context, data, roster *Tx) error) error

	// Ping is like Read, but for a single small read. Ping does not wait for other calls (E4).
	Ping(ctx context.Context, fn func(ctx context.Context, data, roster *Tx) error) error

	// Check returns an error if the store is no longer the store that was opened (I1). Because
	// Check sends no query, it may miss a change.
	Check() error

	// Classify wraps a database error, as described for Store. The error occurred in a transaction
	// that another library owns and rolls back.
	Classify(err error) error

	// Changed returns a channel that is closed when a hint reports a change for the given readers.
	// Watchers get hints only for the changes of other processes. Because readers also poll, hints
	// are optional.
	Changed(of Readers) <-chan struct{}

	// Hears reports whether hints about other processes' changes arrive. If hints no longer arrive,
	// a store notices within Limits.IdlePollPeriod. Hears then reports false, and the store sends a
	// hint to all readers.
	Hears() bool

	// Close ends all blocked calls with ErrClosed, and leaves no goroutine or connection behind
	// (E3).
	Close() error
}

// Readers is a set of blocked calls, by kind. Because there may be thousands of commits a second,
// their entries do not wake Observe (O3).
type Readers uint8

// The kinds of readers can be combined.
const (
	Observers Readers = 1 << iota
	Tailers
	// Watchers are calls of Observe that ask for heartbeats of other processes.
	Watchers
)

// Everybody contains the readers of all kinds.
const Everybody = Observers | Tailers | Watchers

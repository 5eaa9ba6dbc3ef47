package engine

import "context"

// Store runs the transactions of this package on one database product. All methods are safe for
// concurrent use.
//
// A Store may run a function again after a failure that certainly applied nothing. The function
// uses only the context that it gets. If the function returns an error, the Store rolls back
// the transaction and returns that error. It first classifies an error of the database (rule
// E1). The error matches ErrRetry if the transaction was certainly not applied, and no sentinel
// if the outcome is unknown. If the caller's context ends, the method returns promptly (X1),
// with ErrRetry if the transaction had not begun, and otherwise with an unknown outcome.
type Store interface {
	// WriteData runs fn in a write transaction on the data tables.
	WriteData(ctx context.Context, fn func(ctx context.Context, data *Tx) error) error

	// WriteRoster runs fn in a write transaction on the roster's tables. It does not wait for
	// WriteData (E4).
	WriteRoster(ctx context.Context, fn func(ctx context.Context, roster *Tx) error) error

	// WriteBeat is WriteRoster for a heartbeat. A crash that also ends all members may undo its
	// writes.
	WriteBeat(ctx context.Context, fn func(ctx context.Context, roster *Tx) error) error

	// WriteOwners runs fn in a write transaction on the data tables. Between the call of roster and
	// the commit, the rows that fn reads in the roster do not change (A1). fn writes nothing there.
	WriteOwners(ctx context.Context, fn func(ctx context.Context, data *Tx, roster func() (*Tx, error)) error) error

	// ReadData runs fn on one snapshot of the data tables.
	ReadData(ctx context.Context, fn func(ctx context.Context, data *Tx) error) error

	// ReadRoster runs fn on one snapshot of the roster's tables.
	ReadRoster(ctx context.Context, fn func(ctx context.Context, roster *Tx) error) error

	// Read runs fn, which makes single reads outside any transaction. Each sees what was
	// committed before it. Get, List and the looks of a poll use it. So does a barrier's write,
	// which is a transaction by itself.
	Read(ctx context.Context, fn func(ctx context.Context, data, roster *Tx) error) error

	// Ping is Read for a single small read. It does not wait for other calls (E4).
	Ping(ctx context.Context, fn func(ctx context.Context, data, roster *Tx) error) error

	// Check returns an error if the store is not the one that was opened, as far as it can find out
	// without a query (I1).
	Check() error

	// Classify wraps a database error, as Store describes. The error comes from a transaction
	// that another library owns and rolls back.
	Classify(err error) error

	// Changed returns a channel that is closed at a hint that something changed for the given
	// readers. For Watchers, the change is in another process. Hints are optional, because
	// readers poll as well.
	Changed(of Readers) <-chan struct{}

	// Hears reports whether hints arrive for the changes of other processes. A store that no longer
	// hears finds out within Limits.IdlePollPeriod. It then reports false and sends a hint to all
	// readers.
	Hears() bool

	// Close ends all blocked calls with ErrClosed, and leaves no goroutine or connection behind
	// (E3).
	Close() error
}

// Readers are kinds of blocked calls. The entries of commits, thousands a second, wake no Observe
// (O3).
type Readers uint8

// The kinds, which can be combined.
const (
	Observers Readers = 1 << iota
	Tailers
	// Watchers are calls of Observe that ask for heartbeats of other processes.
	Watchers
)

// Everybody is the readers of all kinds.
const Everybody = Observers | Tailers | Watchers

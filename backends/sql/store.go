package sql

import "context"

// Store runs the shared code's transactions on one database product. All methods
// are safe for concurrent use.
//
// A function given to a method may be run again after a failure that certainly
// applied nothing, and uses only the context handed to it. If it returns an
// error, the transaction is rolled back and that error returned; an error of the
// database is classified first (rule E1): ErrRetry if the transaction was
// certainly not applied, no sentinel if that is unknown. The caller's context
// ends a wait promptly (X1): as ErrRetry if the transaction had not begun, else
// unknown.
type Store interface {
	// WriteData runs fn in a write transaction on the data tables.
	WriteData(ctx context.Context, fn func(ctx context.Context, data *Tx) error) error

	// WriteRoster runs fn in a write transaction on the roster's tables. It does
	// not wait behind WriteData (E4).
	WriteRoster(ctx context.Context, fn func(ctx context.Context, roster *Tx) error) error

	// WriteBeat is WriteRoster for a heartbeat. What it wrote need not survive a crash that
	// ends all members as well.
	WriteBeat(ctx context.Context, fn func(ctx context.Context, roster *Tx) error) error

	// WriteOwners runs fn in a write transaction on the data tables. From the call
	// of roster until the transaction has committed, the rows that fn reads in the
	// roster do not change (A1). fn writes nothing there.
	WriteOwners(ctx context.Context, fn func(ctx context.Context, data *Tx, roster func() (*Tx, error)) error) error

	// ReadData runs fn on one snapshot of the data tables.
	ReadData(ctx context.Context, fn func(ctx context.Context, data *Tx) error) error

	// ReadRoster runs fn on one snapshot of the roster's tables.
	ReadRoster(ctx context.Context, fn func(ctx context.Context, roster *Tx) error) error

	// Read runs fn, which makes single reads outside any transaction: each sees
	// what was committed before it (Get, List, and the looks of a poll). A barrier's
	// write, too, is a transaction by itself.
	Read(ctx context.Context, fn func(ctx context.Context, data, roster *Tx) error) error

	// Ping is Read for a single small read, which does not wait behind other calls
	// (E4).
	Ping(ctx context.Context, fn func(ctx context.Context, data, roster *Tx) error) error

	// Check says whether the store is still the one that was opened, as far as
	// that can be told without asking the database (I1).
	Check() error

	// Classify wraps an error of the database, met in a transaction that is not
	// the store's own and that its owner rolls back, as Store describes.
	Classify(err error) error

	// Changed returns a channel that is closed at a hint that something changed for
	// readers of the kind given; for Watchers, in another process. There need not be
	// hints: readers poll as well.
	Changed(of Readers) <-chan struct{}

	// Hears reports whether hints tell of the changes that other processes make. A
	// store that stops hearing finds out within Limits.IdlePollPeriod, reports false
	// from then on, and hints to all readers.
	Hears() bool

	// Close ends everything that is blocked, with ErrClosed, and leaves nothing
	// behind (E3).
	Close() error
}

// Readers are kinds of blocked calls. A commit of entries, of which there can be
// thousands a second, wakes no Observe (O3).
type Readers uint8

// The kinds, which can be combined.
const (
	Observers Readers = 1 << iota
	Tailers
	// Watchers are calls of Observe that ask for heartbeats of other processes.
	Watchers
)

// Everybody is readers of all kinds.
const Everybody = Observers | Tailers | Watchers

package changelog

import (
	"context"
	"time"

	"github.com/tenure-go/tenure/backends/kv"
)

// Bounds of a piggybacked transaction, for which a Store leaves room in each of its
// own transactions.
const (
	MaxPiggybackOps   = 2       // conditions, and operations
	MaxPiggybackBytes = 4 << 10 // values of its operations
)

// Store is a store that cannot list the changes since a revision, as Consul and
// ZooKeeper are. [New] makes it a kv.Store. Get, Range and Close are those of
// kv.Store; all methods are safe for concurrent use.
type Store interface {
	// Apply is that of kv.Store, and honors Batch.Piggyback.
	Apply(ctx context.Context, b *Batch) (*Outcome, error)

	// Get is that of kv.Store.
	Get(ctx context.Context, keys ...string) (*kv.Page, error)

	// Range is that of kv.Store. Page.Rev may be a lower bound: everything up to it is
	// in the page. It never decreases from one call to the next, unless the store went
	// back.
	Range(ctx context.Context, q kv.Range) (*kv.Page, error)

	// Follow calls fn with all records whose key begins with one of the prefixes: at
	// once, and again each time something among them may have changed, until ctx ends,
	// fn fails, or the store can no longer serve it; it never returns nil. Intermediate
	// states may be merged, the last is never lost, and a call may repeat a page. A
	// page is not older than the ones before it, record by record, those of former
	// calls included. Where a store cannot read all at one revision, it lists the keys
	// first, and then reads the values, or knows that they are unchanged: a page in
	// which a record is missing shows the other writes of the transaction that removed
	// it. Page.Rev is a revision up to which everything is in the page, 0 if the store
	// does not report one; it may decrease. The calls of fn come one after another, and
	// none after Follow returned.
	//
	// A prefix ends with "/" or "-", or is a whole key. It is for tens to a few hundreds of
	// small records: change logs and heartbeats.
	Follow(ctx context.Context, prefixes []string, fn func(*kv.Page) error) error

	// Close is that of kv.Store.
	Close() error
}

// Batch is a batch of kv.Store with a piggybacked transaction.
type Batch struct {
	kv.Batch
	// Piggyback, if not nil, is applied in the same atomic step as the applied ones of
	// Txns, only with some of them, and its records have the revision of that step. If
	// its conditions do not hold, nothing is applied and Outcome.PiggybackRefused is
	// true. All that a store applies of a batch with a Piggyback it applies in one
	// atomic step. It has at most MaxPiggybackOps conditions and operations.
	Piggyback *kv.Txn
	// Head, if its key is not empty, is the head that Piggyback shows to the observers
	// of a hand-over, at its revision. A store whose conditions need more of a record
	// than its revision may send that along.
	Head kv.Compare
}

// Outcome is the answer to a Batch.
type Outcome struct {
	kv.Outcome // without Results if PiggybackRefused
	// PiggybackRefused is true if the conditions of Batch.Piggyback did not hold, so
	// that nothing was applied. The rest of the outcome then counts for nothing.
	PiggybackRefused bool
	// Piggyback is the result of Batch.Piggyback; OK is false if no transaction was
	// applied. Its Rev is 0 if the store does not report it.
	Piggyback kv.Result
}

// Options says how New serves a Store. The zero value works.
type Options struct {
	// Parallel bounds the batches under way that change one kind of records, ownership
	// or logs; more wait. Each has its own change log. 0 means 4. It should be at least
	// kv.Options.Pipeline.
	Parallel int
	// ReadKeys is how many keys go into one Get. 0 means 64.
	ReadKeys int
	// Retention is how long a change log that nobody writes is left alone before other
	// processes may remove it. 0 means one minute. Removing one too early costs its
	// readers a read in full, and nothing else.
	Retention time.Duration
}

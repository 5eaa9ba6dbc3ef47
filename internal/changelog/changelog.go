package changelog

import (
	"context"
	"time"

	"github.com/tenure-go/tenure/backends/kv"
)

// These constants limit a piggybacked transaction. A Store reserves room for a piggybacked
// transaction of this size in each of its transactions.
const (
	MaxPiggybackOps   = 2       // number of conditions, and of operations
	MaxPiggybackBytes = 4 << 10 // of the values of its operations
)

// Store is a store, such as Consul or ZooKeeper, that cannot list the changes since a revision.
// [New] turns a Store into a kv.Store. All methods are safe for concurrent use.
type Store interface {
	// Apply is kv.Store.Apply, but also honors Batch.Piggyback.
	Apply(ctx context.Context, b *Batch) (*Outcome, error)

	// Get is kv.Store.Get.
	Get(ctx context.Context, keys ...string) (*kv.Page, error)

	// Range is kv.Store.Range. The page contains all changes up to Page.Rev, and may contain later
	// changes. Page.Rev never decreases from one call to the next, unless the store returned to an
	// earlier state.
	Range(ctx context.Context, q kv.Range) (*kv.Page, error)

	// Follow calls fn with all records whose keys begin with one of the prefixes. It makes the
	// first call immediately, and another each time a record may have changed, until ctx ends, fn
	// fails, or the store can no longer serve the call. Follow never returns nil. It may skip
	// intermediate states and repeat a page, but always delivers the last state. No record in a
	// page is older than in earlier pages, including pages of earlier calls. If a store cannot read
	// all records at one revision, it first lists the keys, and then reads the values that may have
	// changed. Therefore, if a record is missing from a page, the page shows the other writes of
	// the transaction that removed the record. Page.Rev is a revision up to which the page contains
	// all changes, or 0 if the store does not report a revision. Page.Rev may decrease. Calls to fn
	// are sequential, and end before Follow returns.
	//
	// A prefix ends with "/" or "-", or is a whole key. Callers follow change logs and heartbeats,
	// which are tens to a few hundred small records.
	Follow(ctx context.Context, prefixes []string, fn func(*kv.Page) error) error

	// Close is kv.Store.Close.
	Close() error
}

// Batch is a kv.Batch with a piggybacked transaction.
type Batch struct {
	kv.Batch
	// Piggyback, if not nil, is applied only if at least one of Txns is applied. The store then
	// applies Piggyback and the applied Txns in one atomic step. Piggyback's records get the
	// revision of that step. If the conditions of Piggyback do not hold, nothing is applied and
	// Outcome.PiggybackRefused is true. A Piggyback has at most MaxPiggybackOps conditions and at
	// most MaxPiggybackOps operations.
	Piggyback *kv.Txn
	// Head, if its key is not empty, is the head that Piggyback shows to the observers of a
	// hand-over, with its revision. A store whose conditions need more than a record's revision may
	// send this head.
	Head kv.Compare
}

// Outcome is the answer to a Batch.
type Outcome struct {
	kv.Outcome // has no Results if PiggybackRefused is true
	// PiggybackRefused is true if the conditions of Batch.Piggyback did not hold, so that nothing
	// was applied. The other fields are then meaningless.
	PiggybackRefused bool
	// Piggyback is the result of Batch.Piggyback. OK is false if no transaction was applied. Rev is
	// 0 if the store does not report a revision.
	Piggyback kv.Result
}

// Options configure New. The zero value is valid.
type Options struct {
	// Parallel limits the number of batches that concurrently change records of one kind (ownership
	// or logs). Each concurrent batch uses a different change log, and further batches wait. 0
	// means 4. Parallel should be at least kv.Options.Pipeline.
	Parallel int
	// ReadKeys is the number of keys in one Get. 0 means 64.
	ReadKeys int
	// Retention is how long a change log must be idle before other processes may remove it. 0 means
	// one minute. If a change log is removed too early, its readers must read all records again.
	Retention time.Duration
}

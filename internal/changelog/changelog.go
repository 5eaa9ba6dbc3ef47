package changelog

import (
	"context"
	"time"

	"github.com/tenure-go/tenure/backends/kv"
)

// Limits of a piggybacked transaction. A Store leaves room for one in each of its transactions.
const (
	MaxPiggybackOps   = 2       // number of conditions, and of operations
	MaxPiggybackBytes = 4 << 10 // of the values of its operations
)

// Store is a store that cannot list the changes since a revision, such as Consul or ZooKeeper.
// [New] turns it into a kv.Store. Get, Range and Close are those of kv.Store. All methods are
// safe for concurrent use.
type Store interface {
	// Apply is kv.Store.Apply. It honors Batch.Piggyback.
	Apply(ctx context.Context, b *Batch) (*Outcome, error)

	// Get is kv.Store.Get.
	Get(ctx context.Context, keys ...string) (*kv.Page, error)

	// Range is kv.Store.Range. Page.Rev may be a lower bound, up to which the page has
	// everything. It never decreases from one call to the next, unless the store went back.
	Range(ctx context.Context, q kv.Range) (*kv.Page, error)

	// Follow calls fn with all records whose key begins with one of the prefixes. The first
	// call is immediate. The next ones follow each time a record may have changed, until ctx
	// ends, fn fails, or the store can no longer serve it. Follow never returns nil. It may
	// merge intermediate states and repeat a page, but never loses the last state. No record in
	// a page is older than in earlier pages, including those of earlier calls. If a store
	// cannot read all records at one revision, it lists the keys first. It then reads the
	// values, or knows that they are unchanged. So if a record is missing from a page, the page
	// shows the other writes of the transaction that removed it. Page.Rev is a revision up to
	// which the page has everything, or 0 if the store does not report one. It may decrease.
	// Calls of fn are sequential, and none comes after Follow has returned.
	//
	// A prefix ends with "/" or "-", or is a whole key. Follow is for tens to a few hundreds of
	// small records: change logs and heartbeats.
	Follow(ctx context.Context, prefixes []string, fn func(*kv.Page) error) error

	// Close is kv.Store.Close.
	Close() error
}

// Batch is a batch of kv.Store with a piggybacked transaction.
type Batch struct {
	kv.Batch
	// Piggyback, if not nil, is applied in one atomic step with those of Txns that are applied,
	// and only if there are any. Its records get the revision of that step. If its conditions
	// do not hold, nothing is applied and Outcome.PiggybackRefused is true. With a Piggyback,
	// the store applies everything that it applies of the batch in one step. A Piggyback has at
	// most MaxPiggybackOps conditions and operations.
	Piggyback *kv.Txn
	// Head, if its key is not empty, is the head that Piggyback shows to the observers of a
	// hand-over, at its revision. A store whose conditions need more of a record than its revision
	// may send it.
	Head kv.Compare
}

// Outcome is the answer to a Batch.
type Outcome struct {
	kv.Outcome // without Results if PiggybackRefused
	// PiggybackRefused is true if the conditions of Batch.Piggyback did not hold, so that nothing
	// was applied. The other fields are then meaningless.
	PiggybackRefused bool
	// Piggyback is the result of Batch.Piggyback. OK is false if no transaction was applied. Rev is
	// 0 if the store does not report it.
	Piggyback kv.Result
}

// Options configure New. The zero value is valid.
type Options struct {
	// Parallel limits the concurrent batches that change one kind of record, ownership or logs.
	// Further batches wait. Each has its own change log. 0 means 4. It should be at least
	// kv.Options.Pipeline.
	Parallel int
	// ReadKeys is the number of keys in one Get. 0 means 64.
	ReadKeys int
	// Retention is how long a change log stays unwritten before other processes may remove it. 0
	// means one minute. If one is removed too early, its readers read everything once more.
	Retention time.Duration
}

package kv

import (
	"context"
	"time"
)

// Bounds of a Batch's rider, beside which a Plain leaves room in each transaction.
const (
	MaxRiderOps   = 2       // conditions, and operations
	MaxRiderBytes = 4 << 10 // values of its operations
)

// Plain is a store that cannot say what changed since a revision, as Consul and
// ZooKeeper are. [Feeds] makes it a Store. Apply, Get, Range and Close are as in
// Store; all methods are safe for concurrent use.
type Plain interface {
	// Apply is Store's, and honours Batch.Rider.
	Apply(ctx context.Context, b *Batch) (*Outcome, error)

	// Get is Store's.
	Get(ctx context.Context, keys ...string) (*Page, error)

	// Range is Store's. Page.Rev may be a lower bound: everything up to it is in the
	// page. It never decreases from one call to the next, unless the store went back.
	Range(ctx context.Context, q Range) (*Page, error)

	// Follow calls fn with all records whose key begins with one of the prefixes: at
	// once, and again each time something among them may have changed, until ctx
	// ends, fn fails, or the store can no longer serve it; it never returns nil.
	// Intermediate states may be merged, the last is never lost, and a call may
	// repeat what was told. A page is not older than the ones before it, record by
	// record, those of former calls included. Where a store cannot read all at one
	// revision, it lists the keys first, and then reads the values, or knows that
	// they are still what they were: a page in which a record is missing shows what
	// else the transaction wrote that removed it. Page.Rev is a revision up to which
	// everything is in the page, 0 if the store does not tell; it may decrease. The
	// calls of fn come one after another, and none after Follow returned.
	//
	// A prefix ends with "/" or is a whole key. It is for tens to a few hundreds of
	// small records: lanes and heartbeats.
	Follow(ctx context.Context, prefixes []string, fn func(*Page) error) error

	// Close is Store's.
	Close() error
}

// FeedOptions says how Feeds serves a Plain.
type FeedOptions struct {
	// Namespace is that of the Options that Open is called with. Required.
	Namespace string
	// Lanes is how many transactions with hints of one kind, ownership or logs, are
	// under way at once; more wait. 0 means 4. At least Options.Pipeline is useful.
	Lanes int
	// ReadKeys is how many keys go into one Get. 0 means 64.
	ReadKeys int
	// Retention is how long a lane is left alone that nobody writes, before others
	// may remove it. 0 means one minute. A lane removed too early costs a read in
	// full, and nothing else.
	Retention time.Duration
}

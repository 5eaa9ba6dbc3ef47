package kv

import (
	"context"
	"errors"
)

// Rev is a revision of a store: positive, and greater with every transaction
// that writes. Transactions that a store applies as one may share a revision.
type Rev int64

// Values that Compare.Rev takes beside the revision of a record.
const (
	Absent Rev = 0  // the key has no record
	Exists Rev = -1 // the key has a record, whatever its revision
)

// ErrCompacted answers a watch from a revision whose successors the store no
// longer has, or has not reached. The backend then reads everything again.
var ErrCompacted = errors.New("tenure: the store no longer has the changes since that revision")

// Store is what a coordination store has to do to carry package kv: batches of
// independent conditional transactions, linearizable reads, and a watch. All
// methods are safe for concurrent use and keep no slice that they are given;
// values that they return are read only, by both sides, for ever.
//
// Keys are ASCII without spaces, parts are joined by "/", none is empty. A store
// may map them as it likes if Range keeps the order of bytes within one prefix.
//
// The context of a call is its only time-out (rule X1). A write is sent once
// (rule E2). An error of Apply matches one of the closed set of package driver if
// and only if nothing was applied (rule E1); anything else is unknown, the
// context's own error included.
type Store interface {
	// Apply runs the batch's transactions, each atomic by itself and independent of
	// the others. A transaction is applied if and only if the batch's guard and its
	// own conditions hold at its point of the store's order. No transaction writes
	// a key that another one of the batch, or the guard, mentions, so their order
	// does not matter, and a store may evaluate all conditions first.
	//
	// A store whose transaction is all or nothing sends what was refused out of it,
	// reads why, and sends the rest again (rule A6).
	Apply(ctx context.Context, b *Batch) (*Outcome, error)

	// Get reads the keys, linearizably: it sees every write acknowledged before the
	// call. Page.Pairs has one pair for each key, in order, with Rev 0 where there
	// is no record.
	Get(ctx context.Context, keys ...string) (*Page, error)

	// Range reads records, linearizably, in the order of their keys.
	Range(ctx context.Context, q Range) (*Page, error)

	// Watch calls fn with the changes of the keys that begin with one of the
	// prefixes, after revision after, in the order of their revisions, until ctx
	// ends, fn fails, or the store can no longer serve it; it never returns nil.
	// rev is the revision up to which everything was delivered, and one revision is
	// never split over two calls of fn; with several prefixes, order and calls may
	// be those of each prefix by itself. Changes of one key may be merged into the
	// last one. A change may be delivered again, and may be later than rev. Of several
	// chunks of one shard, whose predecessors are found by its number, the last is
	// enough, and a chunk that was never written may be delivered as deleted.
	// ErrCompacted says that changes since after are lost. The calls of fn come one
	// after another, and none after Watch returned.
	Watch(ctx context.Context, prefixes []string, after Rev, fn func(rev Rev, changes []Change) error) error

	// Close ends what is blocked, with an error outside the closed set, and frees
	// everything. It is called once.
	Close() error
}

// Compare is a condition on one record: it has revision Rev, or Absent or Exists.
type Compare struct {
	Key string
	Rev Rev
}

// Op puts or deletes one record. Deleting an absent one is no error; a transaction
// that would change nothing is to be refused by its conditions, because a store may
// have no new revision for it.
type Op struct {
	Key    string
	Value  []byte
	Delete bool
}

// Txn is one conditional transaction: if all of If hold, Ops are applied and Then
// is read, else only Else is read. A key occurs once in Ops.
type Txn struct {
	If   []Compare
	Ops  []Op
	Then []string
	Else []string
	// Prev asks for the revision that the record of Ops[0] had before.
	Prev bool
}

// Batch is a number of transactions under one guard.
type Batch struct {
	// Heartbeat marks what must not queue behind other writes (rule E4): a store
	// sends it on a connection of its own.
	Heartbeat bool
	Guard     []Compare
	Txns      []Txn
}

// Outcome is the answer to a Batch.
type Outcome struct {
	// Rev is the store's revision when it answered, 0 if it does not tell.
	Rev Rev
	// Refused is true if the guard did not hold, so that nothing was applied.
	// Guard then has the records of the guard's keys, in order.
	Refused bool
	Guard   []Pair
	// Results has one result for each transaction, in order, unless Refused.
	Results []Result
}

// Result is the outcome of one Txn.
type Result struct {
	// OK is true if the transaction was applied, at revision Rev.
	OK  bool
	Rev Rev
	// Prev is what Txn.Prev asks for: 0 if there was no record, or if the store
	// does not tell.
	Prev Rev
	// Reads has the records of Then or Else, in order: as they were in the same
	// atomic step, or, where a store's transaction does not read, soon after.
	Reads []Pair
	// Err is an outcome of this transaction alone that is neither applied nor
	// refused by its conditions, classified as an error of Apply is. With OK it is
	// driver.ErrStoreChanged: the store applied it, and is not the one it was.
	Err error
}

// Pair is a record. Rev 0 means that there is none.
type Pair struct {
	Key   string
	Value []byte
	Rev   Rev
}

// Range asks for the records whose key begins with Prefix, from key From on if it
// is not empty.
type Range struct {
	Prefix   string
	From     string
	Limit    int // at most so many, and fewer only if there are no more; 0: all, at one revision where the store can
	KeysOnly bool
}

// Page is the answer to a read. Each pair is as it was at Rev or, where the store
// cannot read at one revision, later; what changed after Rev, Watch tells. Rev is
// 0 only if the store does not tell, which Get may, and Range may not.
type Page struct {
	Rev   Rev
	Pairs []Pair
}

// Change is one change of a watched record. Value is nil if it was deleted.
type Change struct {
	Key     string
	Value   []byte
	Rev     Rev
	Deleted bool
}

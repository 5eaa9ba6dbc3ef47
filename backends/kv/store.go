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

// ErrCompacted ends a Watch if the store no longer has all changes after the revision given,
// or if that revision is greater than the store's. The backend then reads everything again.
var ErrCompacted = errors.New("tenure: the store no longer has the changes since that revision")

// Store is what a coordination store has to do to carry package kv: batches of
// independent conditional transactions, linearizable reads, and a watch. All
// methods are safe for concurrent use. They copy what they keep of their arguments. Nobody
// changes a value that was returned.
//
// Keys are ASCII without spaces, parts are joined by "/", none is empty. They begin with the
// namespace. A store may map them as it likes if Range keeps the order of bytes within one
// prefix.
//
// The context of a call is its only time-out (rule X1). A write is sent once (rule E2). If
// Apply knows that nothing was applied, since nothing was sent or since the store says so, its
// error matches one of the closed set of package driver (see driver.NotApplied; driver.ErrRetry
// is the usual one). In every other case its error matches none of them, and the outcome is
// unknown: no answer, a broken connection, a context that ended after the write was sent (rule
// E1). Errors of reads need not match any.
type Store interface {
	// Apply runs the batch's transactions, each atomic by itself and independent of
	// the others. A transaction is applied if and only if the batch's guard and its
	// own conditions hold at its point of the store's order. No transaction writes
	// a key that another one of the batch, or the guard, mentions, so their order
	// does not matter, and a store may evaluate all conditions first.
	//
	// If the store's transactions are all or nothing, one refusal fails them all. Read the
	// compared records, answer the transactions whose conditions fail, and send the others
	// again; nothing was applied, so this is no retry (rule A6).
	//
	// Apply may split a batch. Once a part was applied, it returns no error and no Refused:
	// what happened to the other parts is in Result.Err of their transactions, ErrRetry if the
	// guard has failed since.
	Apply(ctx context.Context, b *Batch) (*Outcome, error)

	// Get reads the keys, linearizably: it sees every write acknowledged before the
	// call. Page.Pairs has one pair for each key, in order, with Rev 0 where there
	// is no record.
	Get(ctx context.Context, keys ...string) (*Page, error)

	// Range reads records, linearizably, in the order of their keys.
	Range(ctx context.Context, q Range) (*Page, error)

	// Watch calls fn with the changes of the keys that begin with one of the
	// prefixes, after revision after, in the order of their revisions, until ctx
	// ends, fn fails, or the store can no longer serve it; it never returns nil. With
	// ErrCompacted changes since after are lost.
	//
	//   - When fn is called with rev, every change up to rev has been delivered, by this
	//     call or earlier ones. A change may be later than rev, and may be delivered again.
	//   - All changes of one prefix at one revision come in one call of fn. With several
	//     prefixes, each may have its own order and its own calls.
	//   - Changes of one key may be merged into the last one. fn may be called without
	//     changes, to tell rev.
	//   - The calls of fn come one after another, and none after Watch returned.
	//
	// Two permissions, which a store need not use, are for the entries of a shard's log, whose
	// keys end with a number: of several new ones the last is enough, and one that never
	// existed may be delivered as deleted.
	Watch(ctx context.Context, prefixes []string, after Rev, fn func(rev Rev, changes []Change) error) error

	// Close ends what is blocked, and frees everything. What had begun ends with an
	// error outside the closed set. It is called once, by the Backend that Open made; when
	// Open fails, the Store stays the caller's.
	Close() error
}

// Compare is a condition on one record: it has revision Rev, or Absent or Exists.
type Compare struct {
	Key string
	Rev Rev
}

// Op puts or deletes one record. Deleting an absent one is no error. The backend chooses
// conditions so that a transaction that is applied changes at least one record: a store may
// have no new revision for one that changes none.
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
	// Err is set if the transaction was neither applied nor refused by its conditions, if
	// its outcome is unknown, or if Then or Else could not be read. It is classified as an
	// error of Apply, with one exception: driver.ErrStoreChanged with OK says that the store
	// applied the transaction, and has found that it is not the one it was. Most stores never
	// return that.
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
	Limit    int // at most so many; fewer only if there are no more. 0: all, at one revision if the store can
	KeysOnly bool
}

// Page is the answer to a read. Each pair is as it was at Rev, or later if the store cannot
// read at one revision. A Watch after Rev delivers what changed since. Get may answer with Rev
// 0, for unknown; Range must not.
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

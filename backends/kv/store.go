package kv

import (
	"context"
	"errors"
)

// Rev is a revision of a store. Revisions are positive, and increase with every transaction that
// writes. Transactions that a store applies together may share a revision.
type Rev int64

// These values of Compare.Rev express conditions other than a particular revision.
const (
	Absent Rev = 0  // the key has no record
	Exists Rev = -1 // the key has a record, whatever its revision
)

// ErrCompacted is returned by Watch if the store no longer has all changes after the given
// revision, or if that revision exceeds the store's own. The Backend then reads all records again.
var ErrCompacted = errors.New("tenure: the store no longer has the changes since that revision")

// Store is a coordination store with batches of independent conditional transactions, linearizable
// reads, and a watch. All methods are safe for concurrent use. Methods copy whatever they keep of
// their arguments, and callers must not modify returned values.
//
// Keys are ASCII without spaces, and consist of non-empty parts joined by "/". The first part is
// the namespace. A store may represent keys in any way, as long as Range returns the keys with one
// prefix in byte order.
//
// The context is a call's only time limit (rule X1). The store sends each write once (rule E2). If
// it is certain that nothing was applied, the error of Apply satisfies driver.NotApplied, and is
// usually driver.ErrRetry. Any other error means that the outcome is unknown (rule E1). Examples
// are a missing answer, a broken connection, and a context that ended after the write was sent.
// Reads may return any error.
type Store interface {
	// Apply runs the batch's transactions, each of which is atomic and independent of the others. A
	// transaction is applied if the batch's guard and its own conditions hold at its point in the
	// store's order. Otherwise, the transaction is refused. No transaction writes a key that occurs
	// in the guard or in another transaction of the batch. Therefore, the order of the transactions
	// does not matter, and a store may evaluate all conditions first.
	//
	// If the server applies a batch entirely or not at all, one refusal fails the whole batch.
	// Apply then reads the compared records, fills in the results of the transactions whose
	// conditions failed, and sends the rest again. This second attempt is not a retry, because
	// nothing was applied (rule A6).
	//
	// Apply may split a batch. Once a part has been applied, Apply returns neither an error nor
	// Refused. Instead, Result.Err describes the outcome of each remaining transaction. If the
	// guard fails for a later part, Result.Err is ErrRetry.
	Apply(ctx context.Context, b *Batch) (*Outcome, error)

	// Get reads the keys linearizably, so the result includes every write that was acknowledged
	// before the call. Page.Pairs has one pair for each key, in order. If a key has no record, its
	// pair has Rev 0.
	Get(ctx context.Context, keys ...string) (*Page, error)

	// Range reads records linearizably, in the order of their keys.
	Range(ctx context.Context, q Range) (*Page, error)

	// Watch calls fn with the changes after the given revision, in order, to all keys that begin
	// with one of the prefixes. Watch returns a non-nil error when ctx ends, when fn fails, or when
	// the store can no longer deliver changes. ErrCompacted means that not all changes since the
	// given revision are available.
	//
	//   - When fn is called with rev, this and earlier calls include every change up to rev. Later
	//     changes may be included, and may be delivered again.
	//   - All changes below one prefix at one revision arrive in one call of fn. Changes below
	//     different prefixes may arrive in different orders and in separate calls.
	//   - Several changes to one key may be merged into the last one. Watch may call fn without
	//     changes, only to report rev.
	//   - Watch calls fn sequentially, and never after Watch has returned.
	//
	// The keys of a shard's log entries end with a number. A store may deliver only the last of
	// several new entries, and may report the deletion of an entry that never existed.
	Watch(ctx context.Context, prefixes []string, after Rev, fn func(rev Rev, changes []Change) error) error

	// Close ends blocked calls and frees all resources. The errors of pending calls do not satisfy
	// driver.NotApplied. The Backend calls Close once. If Open fails, the Store still belongs to
	// the caller.
	Close() error
}

// Compare is a condition on one record. Rev is the required revision, Absent or Exists.
type Compare struct {
	Key string
	Rev Rev
}

// Op puts or deletes one record. Deleting an absent record is not an error. Some stores assign no
// new revision to a transaction that changes no record. The Backend's conditions therefore ensure
// that each applied transaction changes at least one record.
type Op struct {
	Key    string
	Value  []byte
	Delete bool
}

// Txn is one conditional transaction. If all conditions hold, Ops are applied and the keys in Then
// are read. Otherwise, only the keys in Else are read. A key occurs at most once in Ops.
type Txn struct {
	If   []Compare
	Ops  []Op
	Then []string
	Else []string
	// Prev requests the revision that the record of Ops[0] had before the transaction.
	Prev bool
}

// Batch is a list of transactions under one guard.
type Batch struct {
	// Heartbeat marks a batch that must not queue behind other writes (rule E4). Stores send
	// heartbeats on a separate connection.
	Heartbeat bool
	Guard     []Compare
	Txns      []Txn
}

// Outcome is the result of a Batch.
type Outcome struct {
	// Rev is the store's revision when it answered, or 0 if the store does not report a revision.
	Rev Rev
	// Refused is true if the guard did not hold. In this case, nothing was applied, and Guard
	// contains the records of the guard's keys, in order.
	Refused bool
	Guard   []Pair
	// Results contains one result for each transaction, in order, unless Refused is true.
	Results []Result
}

// Result is the outcome of one Txn.
type Result struct {
	// OK is true if the transaction was applied, at revision Rev.
	OK  bool
	Rev Rev
	// Prev is the revision requested by Txn.Prev, or 0 if there was no record or the store does not
	// report the revision.
	Prev Rev
	// Reads contains the records of Then or Else, in order, as read in the same atomic step. If a
	// store's transactions cannot read, these records are read soon after the transaction.
	Reads []Pair
	// Err is set if the transaction was neither applied nor refused by its conditions, or if its
	// outcome is unknown. Err is also set if Then or Else could not be read. The rules for errors
	// from Apply also hold for Err, with one exception. If OK is true, driver.ErrStoreChanged means
	// that the transaction was applied, but the store was found to have been replaced. Most stores
	// never return this combination.
	Err error
}

// Pair is a record. If Rev is 0, the key has no record.
type Pair struct {
	Key   string
	Value []byte
	Rev   Rev
	Long  int // length of a value that is not in Value because it is longer than Range.Largest
}

// Cut drops a value that is longer than a positive limit.
func (p *Pair) Cut(largest int) {
	if n := len(p.Value); largest > 0 && n > largest {
		p.Value, p.Long = nil, n
	}
}

// Range selects the records whose keys begin with Prefix, starting at From unless From is empty.
type Range struct {
	Prefix   string
	From     string
	Limit    int // at most this many; fewer only if no more exist. 0: all, if possible at one revision
	KeysOnly bool
	// Largest, if positive, limits the length of the returned values. For a longer value, Pair.Long
	// contains the length instead. A store that cannot select by length drops longer values as they
	// arrive. With a Limit, such a store reads a few MiB at a time.
	Largest int
}

// Page is the answer to a read. Each pair was read at revision Rev or, if the store cannot read at
// a single revision, at a later one. A Watch after Rev delivers all later changes. If the revision
// is unknown, Get may set Rev to 0, but Range must not.
type Page struct {
	Rev   Rev
	Pairs []Pair
}

// Change is one change of a watched record. Value is nil if the record was deleted.
type Change struct {
	Key     string
	Value   []byte
	Rev     Rev
	Deleted bool
}

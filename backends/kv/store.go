package kv

import (
	"context"
	"errors"
)

// Rev is a revision of a store: positive, and greater with every transaction that writes.
// Transactions that a store applies together may share a revision.
type Rev int64

// Values of Compare.Rev besides the revision of a record.
const (
	Absent Rev = 0  // the key has no record
	Exists Rev = -1 // the key has a record, whatever its revision
)

// ErrCompacted ends a Watch if the store no longer has all changes after the given revision, or
// if that revision is greater than the store's. The backend then reads everything again.
var ErrCompacted = errors.New("tenure: the store no longer has the changes since that revision")

// Store is the interface of a coordination store for package kv: batches of independent conditional
// transactions, linearizable reads, and a watch. All methods are safe for concurrent use. They copy
// the parts of their arguments that they keep. Callers do not change returned values.
//
// Keys are ASCII without spaces. Their parts are joined by "/" and never empty. The first part
// is the namespace. A store may map keys in any way in which Range keeps the order of bytes
// within one prefix.
//
// The context of a call is its only time-out (rule X1). A write is sent once (rule E2). If
// Apply knows that nothing was applied, its error matches one of the closed set of package
// driver (see driver.NotApplied; driver.ErrRetry is the usual one). In every other case, its
// error matches none of them, and the outcome is unknown. Examples are no answer, a broken
// connection, and a context that ended after the write was sent (rule E1). Errors of reads need
// not match any.
type Store interface {
	// Apply runs the batch's transactions, each atomic and independent of the others. A
	// transaction is applied if and only if the batch's guard and its own conditions hold at
	// its point of the store's order. No transaction writes a key that the guard or another
	// transaction of the batch mentions. So their order does not matter, and a store may
	// evaluate all conditions first.
	//
	// If the store's transactions are all or nothing, one refusal fails them all. Read the compared
	// records, answer the transactions whose conditions fail, and send the others again; nothing
	// was applied, so this is no retry (rule A6).
	//
	// Apply may split a batch. Once a part has been applied, it returns neither an error nor
	// Refused. Result.Err of each other transaction then describes its outcome. It is ErrRetry
	// if the guard failed later.
	Apply(ctx context.Context, b *Batch) (*Outcome, error)

	// Get reads the keys linearizably, so it sees every write acknowledged before the call.
	// Page.Pairs has one pair for each key, in order. A pair without a record has Rev 0.
	Get(ctx context.Context, keys ...string) (*Page, error)

	// Range reads records, linearizably, in the order of their keys.
	Range(ctx context.Context, q Range) (*Page, error)

	// Watch calls fn with the changes after revision after of the keys that begin with one of
	// the prefixes, in the order of their revisions. Watch returns when ctx ends, fn fails, or
	// the store can no longer serve it. It never returns nil. ErrCompacted means that changes
	// since after are lost.
	//
	//   - When fn is called with rev, every change up to rev has been delivered, by this call or
	//     earlier ones. A change may be later than rev, and may be delivered again.
	//   - All changes of one prefix at one revision come in one call of fn. With several prefixes,
	//     each may have its own order and its own calls.
	//   - Changes of one key may be merged into the last change. fn may be called without
	//     changes, to deliver rev.
	//   - The calls of fn come one after another, and none comes after Watch has returned.
	//
	// A store may do two things with the entries of a shard's log, whose keys end with a
	// number. Of several new entries, it may deliver only the last. It may deliver as deleted
	// an entry that never existed.
	Watch(ctx context.Context, prefixes []string, after Rev, fn func(rev Rev, changes []Change) error) error

	// Close ends blocked calls and frees everything. Pending calls end with an error outside the
	// closed set. The Backend that Open returned calls it once. If Open fails, the Store still
	// belongs to the caller.
	Close() error
}

// Compare is a condition on one record. Rev is the revision that it must have, or Absent or
// Exists.
type Compare struct {
	Key string
	Rev Rev
}

// Op puts or deletes one record. Deleting an absent record is no error. A store may not give a
// new revision to a transaction that changes no record. So the backend chooses conditions so
// that each applied transaction changes at least one.
type Op struct {
	Key    string
	Value  []byte
	Delete bool
}

// Txn is one conditional transaction. If all of If hold, Ops are applied and Then is read.
// Otherwise, only Else is read. A key occurs once in Ops.
type Txn struct {
	If   []Compare
	Ops  []Op
	Then []string
	Else []string
	// Prev requests the revision that the record of Ops[0] had before.
	Prev bool
}

// Batch is a number of transactions under one guard.
type Batch struct {
	// Heartbeat marks a batch that must not queue behind other writes (rule E4). A store sends it
	// on a separate connection.
	Heartbeat bool
	Guard     []Compare
	Txns      []Txn
}

// Outcome is the answer to a Batch.
type Outcome struct {
	// Rev is the store's revision when it answered, 0 if it does not report one.
	Rev Rev
	// Refused is true if the guard did not hold, so that nothing was applied. Guard then holds
	// the records of the guard's keys, in order.
	Refused bool
	Guard   []Pair
	// Results holds one result for each transaction, in order, unless Refused.
	Results []Result
}

// Result is the outcome of one Txn.
type Result struct {
	// OK is true if the transaction was applied, at revision Rev.
	OK  bool
	Rev Rev
	// Prev answers Txn.Prev. It is 0 if there was no record, or if the store does not report it.
	Prev Rev
	// Reads holds the records of Then or Else, in order, read in the same atomic step. If a
	// store's transaction cannot read, they are read soon after it.
	Reads []Pair
	// Err is set if the transaction was neither applied nor refused by its conditions, or if
	// its outcome is unknown. It is also set if Then or Else could not be read. It is
	// classified like an error of Apply, with one exception. driver.ErrStoreChanged with OK
	// means that the store applied the transaction, and has found that it was replaced. Most
	// stores never return that.
	Err error
}

// Pair is a record, or with Rev 0 the absence of one.
type Pair struct {
	Key   string
	Value []byte
	Rev   Rev
	Long  int // length of a value that is longer than Range.Largest, and so is not in Value
}

// Cut drops the value if it is longer than largest, which is positive.
func (p *Pair) Cut(largest int) {
	if n := len(p.Value); largest > 0 && n > largest {
		p.Value, p.Long = nil, n
	}
}

// Range selects the records whose key begins with Prefix, from key From on if From is not empty.
type Range struct {
	Prefix   string
	From     string
	Limit    int // at most this many; fewer only if there are no more. 0: all, if possible at one revision
	KeysOnly bool
	// Largest, if positive, is the length of the longest values to return. Instead of a longer
	// value, Pair.Long has its length. A store that cannot select by length drops the value on
	// arrival. With a Limit, it reads in parts of a few MiB.
	Largest int
}

// Page is the answer to a read. Each pair is as it was at Rev, or at a later revision if the
// store cannot read at one revision. A Watch after Rev delivers the changes since. Get may
// answer with Rev 0, which means unknown. Range must not.
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

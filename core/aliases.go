package core

import (
	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/core/fsm"
)

// The contract's types that applications meet. Package driver documents them in
// full; an application imports only this package.
type (
	Backend       = driver.Backend       // one namespace in one store
	Session       = driver.Session       // a member's claim to be alive
	Opener        = driver.Opener        // the value by which configuration chooses a backend
	Info          = driver.Info          // what is constant about an open backend
	Limits        = driver.Limits        // its bounds and habits
	ShardID       = driver.ShardID       // a shard's name
	SessionID     = driver.SessionID     // a member's session; random, used once
	Token         = driver.Token         // the fencing token
	Fence         = driver.Fence         // names one lease exactly; comparable, serialisable
	Owner         = driver.Owner         // a shard's record: session and token
	Member        = driver.Member        // what a member tells the others
	Version       = driver.Version       // version of an item or member record
	Seq           = driver.Seq           // number of a log entry
	WriteNo       = driver.WriteNo       // number of a commit
	Nonce         = driver.Nonce         // tells two attempts of one number apart
	Cursor        = driver.Cursor        // opaque position in a stream of changes
	Head          = driver.Head          // state of a shard's commits and log
	Item          = driver.Item          // a key's value under a shard
	Entry         = driver.Entry         // an entry of a decision log
	LogPage       = driver.LogPage       // a contiguous part of one shard's log
	TailPage      = driver.TailPage      // what TailLog found
	ShardHead     = driver.ShardHead     // a shard's name and head
	ShardState    = driver.ShardState    // a shard's name and record
	Op            = driver.Op            // one operation of a commit
	OpKind        = driver.OpKind        // what an Op does
	Write         = driver.Write         // one fenced, atomic commit
	CommitResult  = driver.CommitResult  // a backend's answer to one Write
	Claim         = driver.Claim         // asks for a lease
	AcquireResult = driver.AcquireResult // outcome of a Claim or Handover
	Handover      = driver.Handover      // passes a lease on
	Beat          = driver.Beat          // a session and its record's version
	Suspect       = driver.Suspect       // a session to evict
	EvictResult   = driver.EvictResult   // outcome of one Suspect
	ObserveQuery  = driver.ObserveQuery  // asks for changes since a cursor
	StoreView     = driver.View          // one page of changes of a namespace

	HeldError     = driver.HeldError     // a denied claim; matches ErrHeld
	FencedError   = driver.FencedError   // a write refused by its fence; matches ErrFenced
	ConflictError = driver.ConflictError // a failed precondition; matches ErrConflict
	TrimmedError  = driver.TrimmedError  // a read below the log's oldest entry; matches ErrTrimmed

	Cause = fsm.Cause // why a lease ended
)

// The kinds of operations, and the versions that are none of an item.
const (
	OpPut    = driver.OpPut
	OpDelete = driver.OpDelete
	OpAppend = driver.OpAppend
	OpTrim   = driver.OpTrim

	AnyVersion = driver.AnyVersion // no precondition
	Absent     = driver.Absent     // the key must not exist

	NumberConflict = driver.NumberConflict // ConflictError.Op of a write that is not the next
)

// Why a lease ended.
const (
	CauseReleased     = fsm.CauseReleased     // withdrawn, and its handler returned
	CauseReturned     = fsm.CauseReturned     // its handler returned though the shard was wanted
	CauseLapsed       = fsm.CauseLapsed       // no heartbeat succeeded in time
	CauseFenced       = fsm.CauseFenced       // the store refused a write under it
	CausePreempted    = fsm.CausePreempted    // the record names another lease
	CauseSessionLost  = fsm.CauseSessionLost  // the session was evicted or superseded
	CauseDrainBudget  = fsm.CauseDrainBudget  // its handler did not return in time
	CauseStalled      = fsm.CauseStalled      // its handler called Progress too rarely
	CauseLeft         = fsm.CauseLeft         // the process left
	CauseStoreChanged = fsm.CauseStoreChanged // the store is not the one it was
)

// CheckShard validates a shard's name: [A-Za-z0-9_][A-Za-z0-9._-]{0,127}. The
// error matches ErrInvalid and says what to change.
func CheckShard(shard string) error { return driver.CheckShard(ShardID(shard)) }

// CheckNode validates a node label, by the same grammar as a shard's name.
func CheckNode(node string) error { return driver.CheckNode(node) }

// CheckNamespace validates a namespace: one to eight names joined by "/".
func CheckNamespace(namespace string) error { return driver.CheckNamespace(namespace) }

// Put sets key to value. A key may occur once in a commit.
func Put(key string, value []byte) Op { return Op{Kind: OpPut, Key: key, Value: value} }

// PutIf sets key to value if the item has version v, or, with Absent, if there is
// no such item; else the commit fails with *ConflictError.
func PutIf(key string, value []byte, v Version) Op {
	return Op{Kind: OpPut, Key: key, Value: value, IfVersion: v}
}

// Delete removes key; removing an absent key is no error.
func Delete(key string) Op { return Op{Kind: OpDelete, Key: key} }

// DeleteIf removes key if the item has version v; else the commit fails with
// *ConflictError.
func DeleteIf(key string, v Version) Op { return Op{Kind: OpDelete, Key: key, IfVersion: v} }

// Append appends payload to the shard's decision log.
func Append(payload []byte) Op { return Op{Kind: OpAppend, Value: payload} }

// Trim removes the log's entries up to and including through, which is at most
// the head of the log before the commit. Trim only what a durable snapshot
// covers: followers that are behind must restore one.
func Trim(through Seq) Op { return Op{Kind: OpTrim, Through: through} }

package core

import (
	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/core/fsm"
)

// The contract's types that applications meet, under names of this package: an
// application imports no other. Package driver has their fields, methods and rules.
type (
	// Backend is one namespace in one store, opened by a backend's Open. The caller
	// closes it, after the Run of every Elector on it. Its methods are those of
	// [driver.Backend].
	Backend = driver.Backend

	// Session is a member's claim to be alive in a store. An Elector makes and uses it;
	// applications do not. Its methods are those of [driver.Session].
	Session = driver.Session

	// Opener is the value by which configuration chooses a backend by its name. Each
	// backend package has a function Opener. Its fields are those of [driver.Opener].
	Opener = driver.Opener

	// Info is what is constant about an open backend: its name, namespace, store
	// identity and Limits. Its fields are those of [driver.Info].
	Info = driver.Info

	// Limits are the bounds of a backend: operations and bytes of one commit, poll
	// period, shortest TTL. Its fields are those of [driver.Limits].
	Limits = driver.Limits

	// ShardID is the name of a shard, a string in the grammar of [CheckShard].
	ShardID = driver.ShardID

	// SessionID names one session of a member, as a string. It is random and is used
	// once.
	SessionID = driver.SessionID

	// Token is the fencing token of a lease, an int64 that grows with each grant of a
	// shard. Tokens of different shards are not compared.
	Token = driver.Token

	// Fence names one lease exactly: Shard, Session and Token. It is comparable and can
	// be sent as JSON; package fence checks it outside the store. Its fields are those
	// of [driver.Fence].
	Fence = driver.Fence

	// Owner is the record of a shard: the Session that was granted it last, empty for
	// none, and the Token. Its fields are those of [driver.Owner].
	Owner = driver.Owner

	// Member is what a member tells the others: Session, Node, TTL, Priority, Weight and
	// Meta. Its fields are those of [driver.Member].
	Member = driver.Member

	// Version is the version of an item, an int64, for [PutIf] and [DeleteIf].
	Version = driver.Version

	// Seq is the number of an entry in a shard's decision log, an int64. The first is 1,
	// and there are no gaps.
	Seq = driver.Seq

	// WriteNo is the number of a commit to a shard, an int64.
	WriteNo = driver.WriteNo

	// Nonce tells two attempts at one number of a commit apart.
	Nonce = driver.Nonce

	// Cursor is an opaque position in a stream of changes.
	Cursor = driver.Cursor

	// Head is the state of a shard's commits and log: Number of the last commit, Seq of
	// the last entry, and the oldest entry. Its fields are those of [driver.Head].
	Head = driver.Head

	// Item is a key of a shard with its Value and Version. Its fields are those of
	// [driver.Item].
	Item = driver.Item

	// Entry is an entry of a decision log: Seq, the Token it was written under, and its
	// Payload. Its fields are those of [driver.Entry].
	Entry = driver.Entry

	// DamagedError names a record of the store that cannot be read: its Key, the Shard it
	// belongs to, and Why. It matches ErrDamaged. Its fields are those of
	// [driver.DamagedError].
	DamagedError = driver.DamagedError

	// LogPage is a contiguous part of one shard's log, and its Head. Its fields are
	// those of [driver.LogPage].
	LogPage = driver.LogPage

	// TailPage is what a read of all logs of a namespace found. Its fields are those of
	// [driver.TailPage].
	TailPage = driver.TailPage

	// ShardHead is a shard's name and Head. Its fields are those of [driver.ShardHead].
	ShardHead = driver.ShardHead

	// ShardState is a shard's name and Owner. Its fields are those of
	// [driver.ShardState].
	ShardState = driver.ShardState

	// Op is one operation of a commit. [Put], [PutIf], [Delete], [DeleteIf], [Append]
	// and [Trim] make it. Its fields are those of [driver.Op].
	Op = driver.Op

	// OpKind says what an Op does.
	OpKind = driver.OpKind

	// Write is one fenced, atomic commit, as a backend takes it. Its fields are those of
	// [driver.Write].
	Write = driver.Write

	// CommitResult is a backend's answer to one Write. Its fields are those of
	// [driver.CommitResult].
	CommitResult = driver.CommitResult

	// Claim asks a backend for a lease. Its fields are those of [driver.Claim].
	Claim = driver.Claim

	// AcquireResult is the outcome of a Claim or Handover. Its fields are those of
	// [driver.AcquireResult].
	AcquireResult = driver.AcquireResult

	// Handover passes a lease on to another session. Its fields are those of
	// [driver.Handover].
	Handover = driver.Handover

	// Beat is a session and the version of its heartbeat. Its fields are those of
	// [driver.Beat].
	Beat = driver.Beat

	// Suspect is a session that is to be evicted if its heartbeat still has a version.
	// Its fields are those of [driver.Suspect].
	Suspect = driver.Suspect

	// EvictResult is the outcome of one Suspect. Its fields are those of
	// [driver.EvictResult].
	EvictResult = driver.EvictResult

	// ObserveQuery asks a backend for what changed since a Cursor. Its fields are those
	// of [driver.ObserveQuery].
	ObserveQuery = driver.ObserveQuery

	// StoreView is one page of changes of a namespace. Applications use [View]. Its
	// fields are those of [driver.View].
	StoreView = driver.View

	// HeldError is a claim that was denied because another session holds the shard. It
	// matches [ErrHeld]. Its fields are those of [driver.HeldError].
	HeldError = driver.HeldError

	// FencedError is a write that the store refused by its fence; Current is the record
	// that refused it. It matches [ErrFenced]. Its fields are those of
	// [driver.FencedError].
	FencedError = driver.FencedError

	// ConflictError is a precondition that does not hold; Op is the index of the
	// operation. It matches [ErrConflict]. Its fields are those of
	// [driver.ConflictError].
	ConflictError = driver.ConflictError

	// SessionLostError says how a session ended and by whom, as far as the store knows.
	// It matches [ErrSessionLost]. Its fields are those of [driver.SessionLostError].
	SessionLostError = driver.SessionLostError

	// TrimmedError is a read below the oldest entry of a log: restore a snapshot. It
	// matches [ErrTrimmed]. Its fields are those of [driver.TrimmedError].
	TrimmedError = driver.TrimmedError

	// Cause says why a lease ended: one of the constants that begin with Cause.
	Cause = fsm.Cause
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

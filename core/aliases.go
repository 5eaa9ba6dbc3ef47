package core

import "github.com/tenure-go/tenure/core/driver"

// The contract's types that applications meet, under names of this package: an
// application imports no other. Package driver has their fields, methods and rules.
type (
	// Backend is one namespace in one store, opened by a backend's Open. The caller
	// closes it, after the Run of every Elector on it. Its methods are those of
	// [driver.Backend].
	Backend = driver.Backend

	// Opener is the value by which configuration chooses a backend by its name. Each
	// backend package has a function Opener. Its fields are those of [driver.Opener].
	Opener = driver.Opener

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

	// Member is what a member tells the others: Session, Node, TTL and its MemberState.
	// Its fields are those of [driver.Member].
	Member = driver.Member

	// MemberState is what a member may change while it runs: Priority, Weight, Meta and
	// Draining. Its fields are those of [driver.MemberState].
	MemberState = driver.MemberState

	// Version is the version of an item, an int64, for [PutIf] and [DeleteIf].
	Version = driver.Version

	// Seq is the number of an entry in a shard's decision log, an int64. The first is 1,
	// and there are no gaps.
	Seq = driver.Seq

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

	// Op is one operation of a commit. [Put], [PutIf], [Delete], [DeleteIf], [Append]
	// and [Trim] make it. Its fields are those of [driver.Op].
	Op = driver.Op

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
)

// Absent is the version of a key that must not exist, for [PutIf].
const Absent = driver.Absent

// CheckShard validates a shard's name: [A-Za-z0-9_][A-Za-z0-9._-]{0,127}. The
// error matches ErrInvalid and says what to change.
func CheckShard(shard string) error { return driver.CheckShard(ShardID(shard)) }

// CheckNamespace validates a namespace: one to eight names joined by "/".
func CheckNamespace(namespace string) error { return driver.CheckNamespace(namespace) }

// Put sets key to value. A key may occur once in a commit.
func Put(key string, value []byte) Op { return Op{Kind: driver.OpPut, Key: key, Value: value} }

// PutIf sets key to value if the item has version v, or, with Absent, if there is
// no such item; else the commit fails with *ConflictError.
func PutIf(key string, value []byte, v Version) Op {
	return Op{Kind: driver.OpPut, Key: key, Value: value, IfVersion: v}
}

// Delete removes key; removing an absent key is no error.
func Delete(key string) Op { return Op{Kind: driver.OpDelete, Key: key} }

// DeleteIf removes key if the item has version v; else the commit fails with
// *ConflictError.
func DeleteIf(key string, v Version) Op { return Op{Kind: driver.OpDelete, Key: key, IfVersion: v} }

// Append appends payload to the shard's decision log.
func Append(payload []byte) Op { return Op{Kind: driver.OpAppend, Value: payload} }

// Trim removes the log's entries up to and including through, which is at most
// the head of the log before the commit. Trim only what a durable snapshot
// covers: followers that are behind must restore one.
func Trim(through Seq) Op { return Op{Kind: driver.OpTrim, Through: through} }

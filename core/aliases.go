package core

import "github.com/tenure-go/tenure/core/driver"

// The driver contract's types that applications use, renamed in this package so that an application
// need not import package driver. Package driver documents their fields, methods and rules.
type (
	// Backend is one namespace in one store. A backend's Open returns it. The caller closes it
	// after the Run of every Elector on it has returned. See [driver.Backend].
	Backend = driver.Backend

	// Opener opens a backend that the configuration selects by name. Each backend package provides
	// a function Opener. See [driver.Opener].
	Opener = driver.Opener

	// Limits are the limits of a backend, such as the operations and bytes of one commit, the poll
	// period and the shortest TTL. See [driver.Limits].
	Limits = driver.Limits

	// ShardID is the name of a shard: a string that [CheckShard] accepts.
	ShardID = driver.ShardID

	// SessionID is a string that names one session of a member. It is random and never reused.
	SessionID = driver.SessionID

	// Token is the fencing token of a lease, an int64 that increases with each grant of a shard. Do
	// not compare tokens of different shards.
	Token = driver.Token

	// Fence names one lease exactly, by Shard, Session and Token. It is comparable and can be
	// encoded as JSON. Package fence checks it outside the store. See [driver.Fence].
	Fence = driver.Fence

	// Member is a member's record as the other members see it: Session, Node, TTL and MemberState.
	// See [driver.Member].
	Member = driver.Member

	// MemberState is the part of a Member that may change while the member runs: Priority, Weight,
	// Meta and Draining. See [driver.MemberState].
	MemberState = driver.MemberState

	// Version is an int64, the version of an item. [PutIf] and [DeleteIf] compare it.
	Version = driver.Version

	// Seq is an int64, the number of an entry in a shard's decision log. Entries are numbered from
	// 1 without gaps.
	Seq = driver.Seq

	// Head is the state of a shard's commits and log: the last commit's Number, the last entry's
	// Seq, and the Oldest entry. See [driver.Head].
	Head = driver.Head

	// Item is a shard's key with its Value and Version. See [driver.Item].
	Item = driver.Item

	// Entry is an entry of a decision log: Seq, the Token under which it was written, and its
	// Payload. See [driver.Entry].
	Entry = driver.Entry

	// DamagedError names a record in the store that cannot be read: its Key, the Shard that it
	// belongs to, and Why. It matches ErrDamaged. See [driver.DamagedError].
	DamagedError = driver.DamagedError

	// LogPage is a contiguous part of one shard's log, and its Head. See [driver.LogPage].
	LogPage = driver.LogPage

	// Op is one operation of a commit. [Put], [PutIf], [Delete], [DeleteIf], [Append] and [Trim]
	// return one. See [driver.Op].
	Op = driver.Op

	// FencedError is the error of a write that the store refused because of its fence. Current is
	// the record that refused the write. It matches [ErrFenced]. See [driver.FencedError].
	FencedError = driver.FencedError

	// ConflictError is the error of a commit with a precondition that does not hold. Op is the
	// index of the operation. It matches [ErrConflict]. See [driver.ConflictError].
	ConflictError = driver.ConflictError

	// SessionLostError says how a session ended and which session ended it, if the store knows.
	// It matches [ErrSessionLost]. See [driver.SessionLostError].
	SessionLostError = driver.SessionLostError

	// TrimmedError is the error of a read below the oldest entry of a log. The reader must restore
	// a snapshot. It matches [ErrTrimmed]. See [driver.TrimmedError].
	TrimmedError = driver.TrimmedError
)

// Absent, passed to [PutIf], is the version of a key that must not exist.
const Absent = driver.Absent

// CheckShard validates a shard's name: [A-Za-z0-9_][A-Za-z0-9._-]{0,127}. The
// error matches ErrInvalid and says what to change.
func CheckShard(shard string) error { return driver.CheckShard(ShardID(shard)) }

// CheckNamespace validates a namespace: one to eight names joined by "/".
func CheckNamespace(namespace string) error { return driver.CheckNamespace(namespace) }

// Put sets key to value. A key may occur once in a commit.
func Put(key string, value []byte) Op { return Op{Kind: driver.OpPut, Key: key, Value: value} }

// PutIf sets key to value if the item has version v. If v is Absent, it does so only if there is no
// such item. Otherwise, the commit fails with *ConflictError.
func PutIf(key string, value []byte, v Version) Op {
	return Op{Kind: driver.OpPut, Key: key, Value: value, IfVersion: v}
}

// Delete removes key. Removing an absent key is not an error.
func Delete(key string) Op { return Op{Kind: driver.OpDelete, Key: key} }

// DeleteIf removes key if the item has version v. Otherwise, the commit fails with *ConflictError.
func DeleteIf(key string, v Version) Op { return Op{Kind: driver.OpDelete, Key: key, IfVersion: v} }

// Append appends payload to the shard's decision log.
func Append(payload []byte) Op { return Op{Kind: driver.OpAppend, Value: payload} }

// Trim removes the log's entries up to and including through, which is at most the head of the log
// before the commit. Trim only entries that a durable snapshot covers, because followers that are
// behind must restore that snapshot.
func Trim(through Seq) Op { return Op{Kind: driver.OpTrim, Through: through} }

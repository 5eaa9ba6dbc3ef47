package core

import "github.com/tenure-go/tenure/core/driver"

// These aliases let applications use the types of package driver without importing it. Package
// driver documents the fields, methods and rules of these types.
type (
	// Backend is one namespace in one store. The Open function of each backend package returns a
	// Backend. Close it only after Run has returned for every Elector that uses it. See
	// [driver.Backend].
	Backend = driver.Backend

	// Opener opens a backend that the configuration selects by name. The Opener function of each
	// backend package returns an Opener. See [driver.Opener].
	Opener = driver.Opener

	// Limits describes a backend's limits, such as the maximum size of a commit, the poll period
	// and the shortest TTL. See [driver.Limits].
	Limits = driver.Limits

	// ShardID is the name of a shard: a string that [CheckShard] accepts.
	ShardID = driver.ShardID

	// SessionID is the id of one session of a member: a random string that is never reused.
	SessionID = driver.SessionID

	// Token is the fencing token of a lease: an int64 that increases with each grant of a shard. Do
	// not compare tokens of different shards.
	Token = driver.Token

	// Fence identifies exactly one lease by its Shard, Session and Token. A Fence is comparable and
	// can be encoded as JSON. Package fence checks fences outside the store. See [driver.Fence].
	Fence = driver.Fence

	// Member is a member's record as other members see it: Session, Node, TTL and MemberState. See
	// [driver.Member].
	Member = driver.Member

	// MemberState is the part of a Member that may change while the member runs: Priority, Weight,
	// Meta and Draining. See [driver.MemberState].
	MemberState = driver.MemberState

	// Version is the version of an item: an int64 that [PutIf] and [DeleteIf] compare.
	Version = driver.Version

	// Seq is the number of an entry in a shard's decision log, as an int64. The numbers start at 1
	// and have no gaps.
	Seq = driver.Seq

	// Head is the state of a shard's commits and log: the number of the last commit, and the
	// numbers of the last and oldest log entries. See [driver.Head].
	Head = driver.Head

	// Item is one key of a shard, with its Value and Version. See [driver.Item].
	Item = driver.Item

	// Entry is an entry of a decision log: its Seq, the Token of its lease, and its Payload. See
	// [driver.Entry].
	Entry = driver.Entry

	// DamagedError reports a record in the store that cannot be read. The error gives the record's
	// key, its shard and the reason. A DamagedError matches ErrDamaged. See [driver.DamagedError].
	DamagedError = driver.DamagedError

	// LogPage is a contiguous part of one shard's log, and its Head. See [driver.LogPage].
	LogPage = driver.LogPage

	// Op is one operation of a commit. [Put], [PutIf], [Delete], [DeleteIf], [Append] and [Trim]
	// each return an Op. See [driver.Op].
	Op = driver.Op

	// FencedError reports a write that the store refused because of its fence. The Current field is
	// the shard's record at the time of the refusal. A FencedError matches [ErrFenced]. See
	// [driver.FencedError].
	FencedError = driver.FencedError

	// ConflictError reports a commit whose precondition does not hold. The Op field is the index of
	// the operation with that precondition. A ConflictError matches [ErrConflict]. See
	// [driver.ConflictError].
	ConflictError = driver.ConflictError

	// SessionLostError reports how a session ended and, if the store knows, which session ended it.
	// A SessionLostError matches [ErrSessionLost]. See [driver.SessionLostError].
	SessionLostError = driver.SessionLostError

	// TrimmedError reports a read that starts before a log's oldest entry. The reader must restore
	// a snapshot. A TrimmedError matches [ErrTrimmed]. See [driver.TrimmedError].
	TrimmedError = driver.TrimmedError
)

// Absent is the version to pass to [PutIf] for a key that must not exist.
const Absent = driver.Absent

// CheckShard validates a shard's name: [A-Za-z0-9_][A-Za-z0-9._-]{0,127}. The error matches
// ErrInvalid and explains what to change.
func CheckShard(shard string) error { return driver.CheckShard(ShardID(shard)) }

// CheckNamespace validates a namespace: one to eight names joined by "/".
func CheckNamespace(namespace string) error { return driver.CheckNamespace(namespace) }

// Put sets key to value. A key may occur at most once in a commit.
func Put(key string, value []byte) Op { return Op{Kind: driver.OpPut, Key: key, Value: value} }

// PutIf sets key to value if the item has version v. If v is Absent, the item must not exist. If
// the version differs, the commit fails with a *ConflictError.
func PutIf(key string, value []byte, v Version) Op {
	return Op{Kind: driver.OpPut, Key: key, Value: value, IfVersion: v}
}

// Delete removes key. Removing an absent key is not an error.
func Delete(key string) Op { return Op{Kind: driver.OpDelete, Key: key} }

// DeleteIf removes key if the item has version v. If the version differs, the commit fails with a
// *ConflictError.
func DeleteIf(key string, v Version) Op { return Op{Kind: driver.OpDelete, Key: key, IfVersion: v} }

// Append appends payload to the shard's decision log.
func Append(payload []byte) Op { return Op{Kind: driver.OpAppend, Value: payload} }

// Trim removes the log entries with numbers up to and including through. That number must not
// exceed the last entry's number before the commit. Trim only entries that a durable snapshot
// covers, because followers that still need trimmed entries must restore that snapshot.
func Trim(through Seq) Op { return Op{Kind: driver.OpTrim, Through: through} }

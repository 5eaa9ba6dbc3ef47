package driver

import (
	"time"
)

// PingShard is the shard that core reads to ping the store. If no heartbeat is answered in time,
// core reads item "0" of this shard, which no caller ever writes. From then on, core sends
// heartbeats only while reads of that item are answered. Core makes up to nine of these reads at a
// time. A Get of item "0" does not wait for any other call (E4).
const PingShard ShardID = "_read"

// ShardID is the name of a shard, the unit of leadership. See CheckShard.
type ShardID string

// SessionID is the random id of one member's session. Core chooses the id and uses it for only one
// attempt to join (rule C3). The zero value means no session.
type SessionID string

// Token is a fencing token. A token is positive, and increases with every new lease of a shard
// (rule A2). Compare tokens only within one shard, and pass a token together with its shard's name.
// Zero is never a token.
type Token int64

// Version distinguishes the states of a stored record. A Version is positive if the record exists.
// Compare the versions of an item only for equality. Each heartbeat increases the version of the
// session's record (rule M1).
type Version int64

// These values of Op.IfVersion are not versions of an item.
const (
	AnyVersion Version = 0  // no precondition
	Absent     Version = -1 // the key must not exist
)

// Seq is the number of an entry in a shard's decision log: 1, 2, 3 ... without gaps.
type Seq int64

// WriteNo is the number of a commit to a shard, counted across all leases: 1, 2, 3 ...
type WriteNo int64

// UpdateNo is the number of an update to a session's record, in the intended order. Numbers may be
// skipped.
type UpdateNo int64

// Nonce is a random number that distinguishes attempts to commit with the same number. A Nonce is
// never zero.
type Nonce uint64

// Cursor is an opaque position in a stream of changes. Only the backend that made a Cursor can read
// it. An empty Cursor means the start. A Cursor holds no credentials. A Cursor may contain any
// bytes, and a backend must safely accept or refuse it.
type Cursor string

// Fence identifies exactly one lease. A Fence can be serialized and compared with ==. Every
// release, transfer and commit carries a Fence.
type Fence struct {
	Shard   ShardID   `json:"shard"`
	Session SessionID `json:"session"`
	Token   Token     `json:"token"`
}

// Owner is a shard's record: the shard's holder and the token of the last lease. If Session is
// empty, no session holds the shard. The zero Owner represents a shard without a record.
type Owner struct {
	Session SessionID `json:"session,omitempty"`
	Token   Token     `json:"token,omitempty"`
}

// Head is the state of a shard's commits and log.
type Head struct {
	Number WriteNo `json:"number"`           // number of commits; the next write has Number+1
	Seq    Seq     `json:"seq"`              // last entry of the log; 0 if there never was an entry
	Oldest Seq     `json:"oldest,omitempty"` // first entry that can still be read, or Seq+1 if no entries are left
	Nonce  Nonce   `json:"nonce,omitempty"`  // nonce of the last commit
	Token  Token   `json:"token,omitempty"`  // token of the lease that made the last commit
}

// Member describes a session to the other members. While the session is alive, only the MemberState
// changes.
type Member struct {
	Session SessionID     `json:"session"`
	Node    string        `json:"node"` // label of the machine or replica; need not be unique
	TTL     time.Duration `json:"ttl"`  // how long the session may be silent before other members may evict it
	MemberState
	// Supersede makes the join also end the last session that joined under the same node label, in
	// the same write. Set Supersede only if the platform keeps the label unique.
	Supersede bool `json:"supersede,omitempty"`
}

// MemberState is the part of a member that Session.Update replaces (M4).
type MemberState struct {
	Priority int32             `json:"priority"`           // members with a higher priority claim first
	Weight   int32             `json:"weight"`             // relative capacity, at least 0
	Meta     map[string]string `json:"meta,omitempty"`     // small values such as an address
	Draining bool              `json:"draining,omitempty"` // set if assigners should give the member no work
	// Update is the sequence number of this state in its session. A joining session may begin with
	// any number.
	Update UpdateNo `json:"update,omitempty"`
}

// Core writes these keys to MemberState.Meta. See internal/mark.
const (
	ineligibleKey = "_ineligible"
	troubleKey    = "_trouble"
)

// Ineligible returns the published reason why the member should not own shards. The reason is empty
// if the member is eligible.
func (st *MemberState) Ineligible() (why string) { return st.Meta[ineligibleKey] }

// Trouble returns the problems that an operator must fix: calls that the store denies to the
// member, or a stuck handler. The text is empty if there are no such problems.
func (st *MemberState) Trouble() (what string) { return st.Meta[troubleKey] }

// Beat identifies a session and the record version that its last heartbeat wrote.
type Beat struct {
	Session SessionID
	Version Version
}

// Claim requests a lease. Seen must match the shard's record exactly. The zero Owner matches a
// shard without a record. A claim with Preempt takes the shard even if its holder is alive.
type Claim struct {
	Shard   ShardID
	Seen    Owner
	Preempt bool
}

// Transfer passes a lease to session To in one write, with a new token (rule A5). The session To
// may be the holder itself.
type Transfer struct {
	Fence Fence
	To    SessionID
}

// Suspect is a Beat that contains a session to evict and the version that Observe last reported for
// the session's record.
type Suspect = Beat

// AcquireResult is the outcome of one Claim or Transfer. If Err is nil, Fence is the new lease and
// Head is the shard's head as the new owner finds it. No earlier lease can still change this head.
type AcquireResult struct {
	Fence Fence
	Head  Head
	Err   error
}

// EvictResult is the outcome of one Suspect. Evicted reports whether this call removed the record.
// If the call removed no record and Err is nil, Current is the record's current version, or 0 if
// there is no record.
type EvictResult struct {
	Evicted bool
	Current Version
	Err     error
}

// Grant is one lease in a shard's history, which the store keeps only for information. The times
// are in whole seconds, by the writers' wall clocks, and may be out of order.
type Grant struct {
	Node  string    `json:"node"`           // node label; if longer than 23 bytes, "~" and its last 22; empty if unknown
	Since time.Time `json:"since,omitzero"` // when the lease began; zero if unknown
	Until time.Time `json:"until,omitzero"` // when the lease ended; for EndGone, when the next owner took the shard
	End   End       `json:"end,omitempty"`  // empty if the lease has not ended
}

// End is the reason why a lease ended.
type End string

// A lease ends for one of these reasons. Stores save these values.
const (
	EndReleased  End = "released"  // released by its session
	EndPassed    End = "passed"    // passed by its session to another session
	EndRenewed   End = "renewed"   // replaced by its session with a lease that has a new token
	EndGone      End = "gone"      // a claim found that its session had no record: see Loss
	EndPreempted End = "preempted" // preempted by a claim with Preempt
)

// OpKind determines what an Op does.
type OpKind uint8

// These are the kinds of operations in a Write.
const (
	OpPut    OpKind = iota + 1 // sets Key to Value if IfVersion allows it
	OpDelete                   // removes Key if IfVersion allows it; removing an absent key is not an error
	OpAppend                   // appends Value to the shard's log
	OpTrim                     // removes the log's entries up to and including Through
)

func (k OpKind) String() string {
	switch k {
	case OpPut:
		return "put"
	case OpDelete:
		return "delete"
	case OpAppend:
		return "append"
	case OpTrim:
		return "trim"
	}
	return "invalid"
}

// Op is one operation in a Write. Keys and entries belong to the fence's shard. A key may occur at
// most once in a write.
type Op struct {
	Kind      OpKind
	Key       string  // OpPut, OpDelete
	Value     []byte  // value of OpPut, or payload of OpAppend; nil and empty are equivalent
	IfVersion Version // OpPut, OpDelete: AnyVersion, Absent, or the item's version
	Through   Seq     // OpTrim: at most the head of the log before this write
}

// Write is one fenced, atomic commit to one shard. Number is the new commit's number, which is
// Head.Number+1. The backend must not keep Ops or its byte slices after the call has returned.
type Write struct {
	Fence  Fence
	Number WriteNo
	Nonce  Nonce
	Ops    []Op
}

// CommitResult is the outcome of one Write. If Err is nil, Head is the shard's head after the
// write. Versions contains one element for each Op: the version that a Put gave its item, or 0 for
// an Op of another kind. Versions is nil if the write has no Put. If the write appended entries,
// the last entry has the number Head.Seq, and the others have the preceding numbers.
type CommitResult struct {
	Head     Head
	Versions []Version
	Err      error
}

// Item is one key of a shard, with its value and version.
type Item struct {
	Key     string
	Value   []byte
	Version Version
	Damaged *DamagedError // set by List if the value is too long for the call
}

// Entry is one entry of a shard's decision log.
type Entry struct {
	Shard   ShardID
	Seq     Seq
	Token   Token   // token of the lease that appended it
	Number  WriteNo // number of the commit that appended it
	Payload []byte
}

// LogPage is a contiguous part of one shard's log, and the shard's head. The head includes every
// commit acknowledged before the call. For a shard without a record, the page is empty and has the
// zero Head.
type LogPage struct {
	Entries []Entry
	Head    Head
}

// ShardHead is a shard's name and head.
type ShardHead struct {
	Shard ShardID
	Head  Head
}

// TailPage is the result of TailLog. If Reset is set, Heads contains the head of every shard that
// has a head, Entries is empty, and the reader must catch up with ReadLog.
type TailPage struct {
	Cursor  Cursor
	Reset   bool
	Heads   []ShardHead
	Entries []Entry
}

// ObserveQuery requests the changes since a cursor. Beats lists the sessions whose heartbeats wake
// the caller, each with its last known version, or 0 if none is known.
type ObserveQuery struct {
	Since Cursor
	Beats []Beat
}

// ShardState is a shard's name and record. If Head is not nil, it is the shard's head at the grant
// of Owner's lease, or after a later commit under this lease. Head is nil if getting it would cost
// the store another read, if no session holds the shard, or if the head is damaged (O1).
type ShardState struct {
	Shard ShardID
	Owner Owner
	Head  *Head
}

// View is one page of changes to a namespace. If Reset is set, the View is the full state. A shard
// or member that the View does not list does not exist.
type View struct {
	Cursor Cursor
	Reset  bool
	// Members lists the members that joined or were updated since the cursor, or all members if
	// Reset is set. Gone lists the sessions that ended. A session that joined and ended since the
	// cursor may appear only in Gone, or in neither list.
	Members []Member
	Gone    []SessionID
	// Beats lists the requested sessions whose version is newer than the version in the query. An
	// older version is not a sign of life. A session without a record is not listed.
	Beats []Beat
	// Shards lists the shards whose record changed since the cursor, or all shards if Reset is set.
	Shards []ShardState
	// Damaged lists up to 64 unreadable records of shards and members (D1). With Reset, Damaged
	// covers all such records. Otherwise, Damaged covers the records found since the cursor.
	Damaged []*DamagedError
	// Floor is set only with Reset. Floor is the value to which the namespace's tokens were last
	// raised, either by a failover that may have lost grants or by an operator. Tokens granted
	// before the raise are at most Floor, and later tokens are above Floor (I2). A shard that the
	// view does not list is free. A claim to such a shard matches if Seen is the zero Owner or
	// Owner{Token: Floor}. Floor is 0 if tokens were never raised, or if the backend learns of a
	// raise only when it is opened again.
	Floor Token
}

// Limits describes a backend's limits and properties, which stay constant once it is open.
type Limits struct {
	// BatchItems is the number of items that Acquire, Transfer, Release, Commit or Evict sends in
	// one round trip. Calls may contain more items, because the backend splits them.
	BatchItems int
	// CommitCalls is the number of concurrent Commit calls at which one process commits fastest.
	// Core makes at most this many Commit calls at a time, unless some calls take a long time. The
	// value 0 counts as 1.
	CommitCalls int
	// WriteOps and WriteBytes limit the operations in one Write, and the total length of its keys
	// and values. A larger Write fails with ErrTooLarge before anything is sent.
	WriteOps   int
	WriteBytes int
	// PollPeriod is the longest time that a change may go unreported on a polled store while
	// changes are expected. PollPeriod is 0 if the store pushes changes.
	PollPeriod time.Duration
	// IdlePollPeriod is the longest time that a change may go unreported after a quiet period, or
	// if its notification was lost. IdlePollPeriod is 0 if PollPeriod applies.
	IdlePollPeriod time.Duration
	// MinTTL is the shortest Member.TTL that proved workable in measurements on this store.
	MinTTL time.Duration
	// RecordsStay reports whether the store can never remove a shard's record. If RecordsStay is
	// set, a free lock keeps its record, which is an exception to rule R2.
	RecordsStay bool
}

// Info describes an open backend. An Info never changes and holds no credentials.
type Info struct {
	Backend   string // the Opener's name, such as "sqlite"
	Namespace string
	StoreID   string // the namespace's identity (rule I1)
	Limits    Limits
	// Rollback describes what the store may have lost if Open found that the store's history
	// differs from the recorded history. Rollback is empty if nothing was lost, or if the store
	// does not report losses.
	Rollback string
}

package driver

import (
	"time"
)

// PingShard is the shard of a ping. If no heartbeat is answered in time, core reads item "0" of
// this shard, which is never written. From then on, core sends heartbeats only while such reads are
// answered. It makes up to nine of these reads at a time. A Get of the item waits for no other call
// (E4).
const PingShard ShardID = "_read"

// ShardID names a shard, the unit of leadership. See CheckShard.
type ShardID string

// SessionID is the random id of one member's session. Core chooses it and uses it for only one
// attempt to join (rule C3). The zero value means no session.
type SessionID string

// Token is the fencing token. It is positive, and increases with every new lease of a shard (rule
// A2). Compare tokens only within one shard; a token therefore travels together with its shard's
// name. Zero is never issued.
type Token int64

// Version is a version of a stored record, positive for a record that exists. Compare an item's
// versions for equality only. A session's record has a greater version after each heartbeat (rule
// M1).
type Version int64

// Values of Op.IfVersion other than the version of an item.
const (
	AnyVersion Version = 0  // no precondition
	Absent     Version = -1 // the key must not exist
)

// Seq numbers the entries of a shard's decision log: 1, 2, 3 ... without gaps.
type Seq int64

// WriteNo numbers the commits of a shard across all its leases: 1, 2, 3 ...
type WriteNo int64

// UpdateNo numbers the updates of a session's record in the intended order. Numbers may be skipped.
type UpdateNo int64

// Nonce is a random number that distinguishes attempts to commit with the same number. Zero is
// not used.
type Nonce uint64

// Cursor is an opaque position in a stream of changes, made and read by one backend only. An empty
// Cursor means the start. A Cursor holds no credentials. A backend must accept or refuse any bytes
// without harm.
type Cursor string

// Fence names one lease exactly. It can be serialised and compared with ==. Every release,
// transfer and commit carries it.
type Fence struct {
	Shard   ShardID   `json:"shard"`
	Session SessionID `json:"session"`
	Token   Token     `json:"token"`
}

// Owner is a shard's record: its holder and the token of the last lease. If Session is empty,
// no session holds the shard. The zero Owner is a shard without a record.
type Owner struct {
	Session SessionID `json:"session,omitempty"`
	Token   Token     `json:"token,omitempty"`
}

// Head is the state of a shard's commits and log.
type Head struct {
	Number WriteNo `json:"number"`           // number of commits; the next write has Number+1
	Seq    Seq     `json:"seq"`              // last entry of the log; 0 if there never was one
	Oldest Seq     `json:"oldest,omitempty"` // first entry that can still be read; Seq+1 if none is left
	Nonce  Nonce   `json:"nonce,omitempty"`  // of the last commit
	Token  Token   `json:"token,omitempty"`  // of the lease that made the last commit
}

// Member describes a session to the other members. Only its MemberState changes while the session
// is alive.
type Member struct {
	Session SessionID     `json:"session"`
	Node    string        `json:"node"` // label of the machine or replica; need not be unique
	TTL     time.Duration `json:"ttl"`  // silence after which other members may evict the session
	MemberState
	// Supersede makes the join also end the session that joined last under the same node label,
	// in the same write. It is for labels that the platform keeps unique.
	Supersede bool `json:"supersede,omitempty"`
}

// MemberState is the part of a member that Session.Update replaces (M4).
type MemberState struct {
	Priority int32             `json:"priority"`           // higher claims first
	Weight   int32             `json:"weight"`             // capacity; relative, at least 0
	Meta     map[string]string `json:"meta,omitempty"`     // small values, such as an address
	Draining bool              `json:"draining,omitempty"` // for assigners: the member should have no work
	// Update numbers the states of one session. A session may join with any number.
	Update UpdateNo `json:"update,omitempty"`
}

// Keys of MemberState.Meta that core writes: see internal/mark.
const (
	ineligibleKey = "_ineligible"
	troubleKey    = "_trouble"
)

// Ineligible returns the published reason why the member should not own shards. It is empty if the
// member is eligible.
func (st *MemberState) Ineligible() (why string) { return st.Meta[ineligibleKey] }

// Trouble returns the problems that an operator must fix: calls that the store denies to the
// member, or a stuck handler. It is empty if there are no problems.
func (st *MemberState) Trouble() (what string) { return st.Meta[troubleKey] }

// Beat is a session and the version that its last heartbeat gave its record.
type Beat struct {
	Session SessionID
	Version Version
}

// Claim requests a lease. Seen must match the shard's record exactly; the zero Owner matches a
// shard without a record. Preempt takes the shard even if its holder is alive.
type Claim struct {
	Shard   ShardID
	Seen    Owner
	Preempt bool
}

// Transfer passes a lease to session To, which may be the holder itself, in one write and with a
// new token (rule A5).
type Transfer struct {
	Fence Fence
	To    SessionID
}

// Suspect is a session to evict, with the version of its record that was last seen. It is the same
// Beat that Observe reported.
type Suspect = Beat

// AcquireResult is the outcome of one Claim or Transfer. If Err is nil, Fence is the new lease
// and Head is the shard's head as the new owner finds it. No earlier lease can change it.
type AcquireResult struct {
	Fence Fence
	Head  Head
	Err   error
}

// EvictResult is the outcome of one Suspect. Evicted reports whether this call removed the record.
// If it did not, and Err is nil, Current is the record's present version, or 0 if there is no
// record.
type EvictResult struct {
	Evicted bool
	Current Version
	Err     error
}

// Grant is one lease of a shard in the history that the store keeps for people. The times are whole
// seconds on the writers' wall clocks. They decide nothing, and may be out of order.
type Grant struct {
	Node  string    `json:"node"`           // node label; if longer than 23 bytes, "~" and its last 22; empty if unknown
	Since time.Time `json:"since,omitzero"` // zero if unknown
	Until time.Time `json:"until,omitzero"` // for EndGone, when the next owner took the shard
	End   End       `json:"end,omitempty"`  // empty if it has not ended
}

// End is the reason why a lease ended.
type End string

// The reasons why leases end. Stores keep the values.
const (
	EndReleased  End = "released"  // by its session
	EndPassed    End = "passed"    // by its session, to another session
	EndRenewed   End = "renewed"   // by its session, for a lease with a new token
	EndGone      End = "gone"      // a claim found that its session had no record: see Loss
	EndPreempted End = "preempted" // by a claim with Preempt
)

// OpKind is the kind of an Op.
type OpKind uint8

// The kinds of operations of a Write.
const (
	OpPut    OpKind = iota + 1 // sets Key to Value, if IfVersion allows
	OpDelete                   // removes Key, if IfVersion allows; not an error if it is absent
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

// Op is one operation of a Write. Keys and entries belong to the fence's shard. A key may occur
// once in a write.
type Op struct {
	Kind      OpKind
	Key       string  // OpPut, OpDelete
	Value     []byte  // of OpPut, or the payload of OpAppend; nil and empty are equal
	IfVersion Version // OpPut, OpDelete: AnyVersion, Absent, or the item's version
	Through   Seq     // OpTrim: at most the head of the log before this write
}

// Write is one fenced, atomic commit under one shard. Number is the number that the commit will
// have: the head's plus one. The backend must not keep Ops or its byte slices after the call has
// returned.
type Write struct {
	Fence  Fence
	Number WriteNo
	Nonce  Nonce
	Ops    []Op
}

// CommitResult is the outcome of one Write. If Err is nil, Head is the shard's head after it.
// Versions contains, for each Op, the version that a Put gave its item, and 0 for other kinds. It
// is nil if the write has no Put. If the write appended entries, the last has number Head.Seq, and
// the others precede it.
type CommitResult struct {
	Head     Head
	Versions []Version
	Err      error
}

// Item is a key's value under a shard.
type Item struct {
	Key     string
	Value   []byte
	Version Version
	Damaged *DamagedError // not nil for an item of List whose value was too long for the call
}

// Entry is one entry of a shard's decision log.
type Entry struct {
	Shard   ShardID
	Seq     Seq
	Token   Token   // of the lease that appended it
	Number  WriteNo // of the commit that appended it
	Payload []byte
}

// LogPage is a contiguous part of one shard's log, and the shard's head, no older than any commit
// acknowledged before the call. For a shard without a record, the page is empty and has the zero
// Head.
type LogPage struct {
	Entries []Entry
	Head    Head
}

// ShardHead is a shard's name and head.
type ShardHead struct {
	Shard ShardID
	Head  Head
}

// TailPage is the result of TailLog. With Reset, Heads contains the head of every shard that has
// one, Entries is empty, and the reader catches up with ReadLog.
type TailPage struct {
	Cursor  Cursor
	Reset   bool
	Heads   []ShardHead
	Entries []Entry
}

// ObserveQuery asks for the changes since a cursor. Beats lists the sessions whose heartbeats
// wake the caller, each with the version that the caller knows (0: none).
type ObserveQuery struct {
	Since Cursor
	Beats []Beat
}

// ShardState is a shard's name and record. If Head is not nil, it is the shard's head at the grant
// of the lease that Owner names, or after a later commit under this lease. Head is nil if it would
// cost the store a read, if no session holds the shard, or if the head is damaged (O1).
type ShardState struct {
	Shard ShardID
	Owner Owner
	Head  *Head
}

// View is one page of changes of a namespace. With Reset, it is the full state: anything that it
// does not list does not exist.
type View struct {
	Cursor Cursor
	Reset  bool
	// Members lists the members that joined or were updated since the cursor (with Reset, all
	// members). Gone lists the sessions that ended. A session that joined and ended in between may
	// appear only in Gone, or in neither list.
	Members []Member
	Gone    []SessionID
	// Beats lists the requested sessions whose version is newer than in the query; an older version
	// is no sign of life. A session without a record is not listed.
	Beats []Beat
	// Shards lists the shards whose record changed since the cursor (with Reset, all shards).
	Shards []ShardState
	// Damaged names records of shards and members that cannot be read (D1), up to 64:
	// those found since the cursor, or all with Reset.
	Damaged []*DamagedError
	// Floor is set with Reset only. It is the value to which the namespace's tokens were last
	// raised, by a failover that may have lost grants, or by an operator. Tokens granted before are
	// at most Floor, and later tokens are above it (I2). A shard that is not listed is free: a
	// claim to it matches with the zero Owner, and with Owner{Token: Floor}. Floor is 0 if tokens
	// were never raised, or if the backend learns of a raise only when it is opened again.
	Floor Token
}

// Limits are a backend's limits and properties. They are constant after opening.
type Limits struct {
	// BatchItems is the number of items of Acquire, Transfer, Release, Commit or Evict in one round
	// trip. Calls may contain more items: the backend splits them.
	BatchItems int
	// CommitCalls is the number of concurrent calls of Commit beyond which one process's commits
	// are no faster. Core makes at most this number of calls, unless some take long. 0 counts as 1.
	CommitCalls int
	// WriteOps and WriteBytes limit one Write: its operations, and the sum of the lengths of its
	// keys and values. A larger Write fails with ErrTooLarge before anything is sent.
	WriteOps   int
	WriteBytes int
	// If the store is polled, PollPeriod is how late a change may be reported while changes are
	// expected. It is 0 if the store pushes.
	PollPeriod time.Duration
	// IdlePollPeriod is how late the first change after a quiet time, or a change whose
	// notification was lost, may be reported. It is 0 if PollPeriod applies.
	IdlePollPeriod time.Duration
	// MinTTL is the shortest Member.TTL that measurements showed to work on this store.
	MinTTL time.Duration
	// RecordsStay reports whether a shard's record can never be removed, so that each name of a
	// free lock keeps its record. This is an exception to rule R2.
	RecordsStay bool
}

// Info describes an open backend. It is constant after opening and holds no credentials.
type Info struct {
	Backend   string // the Opener's name, such as "sqlite"
	Namespace string
	StoreID   string // the namespace's identity (rule I1)
	Limits    Limits
	// Rollback describes what the store may have lost, if opening it found and recorded that its
	// history differs from the recorded one. It is empty if nothing was lost, or if the store does
	// not report a loss.
	Rollback string
}

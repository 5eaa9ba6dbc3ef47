package driver

import (
	"time"
)

// PingShard is the shard of a ping. When no heartbeat was answered in time, core reads the
// item "0" of this shard, which is never written, and sends heartbeats only while such reads
// are answered. It makes up to nine at a time, and a Get of it waits for no other call (E4).
const PingShard ShardID = "_read"

// ShardID names a shard, the unit of leadership. See CheckShard.
type ShardID string

// SessionID is the random id of one member's session, chosen by core and used
// for one attempt to join only (rule C3). The zero value means nobody.
type SessionID string

// Token is the fencing token: positive, and greater with every new lease of a
// shard, for ever (rule A2). Tokens are compared within one shard only, so a
// token travels together with its shard's name. Zero is never issued.
type Token int64

// Version is a version of a stored record, positive for a record that exists. An
// item's is compared for equality only; a session's record has a greater one after
// each heartbeat (rule M1).
type Version int64

// Values that Op.IfVersion takes beside the version of an item.
const (
	AnyVersion Version = 0  // no precondition
	Absent     Version = -1 // the key must not exist
)

// Seq numbers the entries of a shard's decision log: 1, 2, 3 ... without gaps.
type Seq int64

// WriteNo numbers the commits of a shard: 1, 2, 3 ... over all its leases.
type WriteNo int64

// UpdateNo numbers the updates of a session's record in the order in which they are
// meant. Numbers may be left out.
type UpdateNo int64

// Nonce is a random number that tells one attempt to commit from another with
// the same number. Zero is not used.
type Nonce uint64

// Cursor is an opaque position in a stream of changes, made and read by one
// backend only. Empty means from the start. It holds no credentials, and a
// backend must accept or refuse any bytes without harm.
type Cursor string

// Fence names one lease exactly: serialisable, and comparable with ==. Every
// release, transfer and commit carries it.
type Fence struct {
	Shard   ShardID   `json:"shard"`
	Session SessionID `json:"session"`
	Token   Token     `json:"token"`
}

// Owner is a shard's record: its holder and the token it was granted. A zero
// Session is held by nobody; the token stays that of the last lease. The zero
// Owner is a shard without a record.
type Owner struct {
	Session SessionID `json:"session,omitempty"`
	Token   Token     `json:"token,omitempty"`
}

// Head is the state of a shard's commits and log.
type Head struct {
	Number WriteNo `json:"number"`           // commits so far; the next write has Number+1
	Seq    Seq     `json:"seq"`              // last entry of the log; 0 when there never was one
	Oldest Seq     `json:"oldest,omitempty"` // first entry that can still be read; Seq+1 when none is left
	Nonce  Nonce   `json:"nonce,omitempty"`  // of the last commit
	Token  Token   `json:"token,omitempty"`  // of the lease that made the last commit
}

// Member is what a session tells the others. Only its MemberState changes while the
// session lives.
type Member struct {
	Session SessionID     `json:"session"`
	Node    string        `json:"node"` // label of the machine or replica; need not be unique
	TTL     time.Duration `json:"ttl"`  // how long the others wait in silence before they evict
	MemberState
	// Supersede ends the session that joined last under the same node label, in
	// the same write. For labels that the platform keeps unique.
	Supersede bool `json:"supersede,omitempty"`
}

// MemberState is the part of a member that Session.Update replaces (M4).
type MemberState struct {
	Priority int32             `json:"priority"`           // higher claims first
	Weight   int32             `json:"weight"`             // capacity; relative, at least 0
	Meta     map[string]string `json:"meta,omitempty"`     // small, such as an address
	Draining bool              `json:"draining,omitempty"` // for those who assign work: it is to have none
	// Update numbers the states of one session. A session may join with any.
	Update UpdateNo `json:"update,omitempty"`
}

// IneligibleKey is the key of MemberState.Meta under which a member that is not eligible
// says why. Core writes it; a backend stores it as any other.
const IneligibleKey = "_ineligible"

// Ineligible returns why the member is not to own shards, as it says itself; empty if it is
// eligible.
func (st *MemberState) Ineligible() (why string) { return st.Meta[IneligibleKey] }

// TroubleKey is the key of MemberState.Meta under which a member that somebody has to help says
// why, as under IneligibleKey.
const TroubleKey = "_trouble"

// Trouble returns what somebody has to mend about the member: calls that the store denies it,
// or a handler that is stuck. It is empty if there is nothing.
func (st *MemberState) Trouble() (what string) { return st.Meta[TroubleKey] }

// Beat is a session and the version of its record that a heartbeat last made.
type Beat struct {
	Session SessionID
	Version Version
}

// Claim asks for a lease. Seen must match the shard's record exactly; the zero
// Owner matches a shard that has none. Preempt takes the shard although its
// holder lives.
type Claim struct {
	Shard   ShardID
	Seen    Owner
	Preempt bool
}

// Transfer passes a lease on to session To, which may be the holder itself, in
// one write and with a new token (rule A5).
type Transfer struct {
	Fence Fence
	To    SessionID
}

// Suspect is a session to evict, and the version of its record that was last
// seen: the same Beat that Observe reported.
type Suspect = Beat

// AcquireResult is the outcome of one Claim or Transfer. With a nil Err, Fence
// is the new lease and Head the shard's head as the new owner finds it: no
// earlier lease can move it any more.
type AcquireResult struct {
	Fence Fence
	Head  Head
	Err   error
}

// EvictResult is the outcome of one Suspect. Evicted is true if this call
// removed the record. Otherwise, with a nil Err, Current is the version that the
// record has now, 0 if there is none.
type EvictResult struct {
	Evicted bool
	Current Version
	Err     error
}

// OpKind says what an Op does.
type OpKind uint8

// The kinds of operations of a Write.
const (
	OpPut    OpKind = iota + 1 // sets Key to Value, if IfVersion allows
	OpDelete                   // removes Key, if IfVersion allows; removing an absent key is no error
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

// Op is one operation of a Write. Keys and entries live under the fence's shard.
// A key may occur once in a write.
type Op struct {
	Kind      OpKind
	Key       string  // OpPut, OpDelete
	Value     []byte  // OpPut, and the payload of OpAppend; nil and empty are the same
	IfVersion Version // OpPut, OpDelete: AnyVersion, Absent, or the item's version
	Through   Seq     // OpTrim: at most the head of the log before this write
}

// Write is one fenced, atomic commit under one shard. Number is the number that
// the commit will have: the head's plus one. The backend keeps neither Ops nor
// the byte slices in them after the call returned.
type Write struct {
	Fence  Fence
	Number WriteNo
	Nonce  Nonce
	Ops    []Op
}

// CommitResult is the outcome of one Write. With a nil Err, Head is the shard's
// head after it, and Versions has, for each Op, the version that a Put gave its
// item (0 for other kinds); Versions is nil when the write has no Put. With
// entries appended, the last has Head.Seq, and the others precede it.
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
}

// Entry is one entry of a shard's decision log.
type Entry struct {
	Shard   ShardID
	Seq     Seq
	Token   Token   // of the lease that appended it
	Number  WriteNo // of the commit that appended it
	Payload []byte
}

// LogPage is a contiguous part of one shard's log, and the shard's head, no
// older than any commit acknowledged before the call. A shard without a record
// has an empty page and the zero Head.
type LogPage struct {
	Entries []Entry
	Head    Head
}

// ShardHead is a shard's name and head.
type ShardHead struct {
	Shard ShardID
	Head  Head
}

// TailPage is what TailLog found since its cursor. With Reset, Heads has the
// head of every shard that has one, Entries is empty, and the reader catches up
// with ReadLog.
type TailPage struct {
	Cursor  Cursor
	Reset   bool
	Heads   []ShardHead
	Entries []Entry
}

// ObserveQuery asks for what changed since a cursor. Beats lists the sessions
// whose heartbeats wake the caller, each with the version it knows (0: none).
type ObserveQuery struct {
	Since Cursor
	Beats []Beat
}

// ShardState is a shard's name and record. Head, if it is not nil, is a head of the shard
// during the lease that Owner names: that at the grant, or after a later commit under this
// lease. It is nil where the store does not know it without a read, for a shard that nobody
// holds, and for one whose head is damaged (O1).
type ShardState struct {
	Shard ShardID
	Owner Owner
	Head  *Head
}

// View is one page of changes of a namespace. With Reset it is the full state:
// what it does not list does not exist.
type View struct {
	Cursor Cursor
	Reset  bool
	// Members that joined or were updated since the cursor (all of them with Reset),
	// and Gone, the sessions that ended. A session that joined and ended in between
	// may be in Gone only, or in neither.
	Members []Member
	Gone    []SessionID
	// Beats has the sessions asked for whose version is newer than the one given in
	// the query: an older one is no sign of life. A session that has no record is
	// not listed.
	Beats []Beat
	// Shards whose record changed since the cursor (all of them with Reset).
	Shards []ShardState
	// Damaged names records of shards and members that cannot be read (D1): those that
	// were met since the cursor, all of them with Reset, up to MaxDamaged.
	Damaged []*DamagedError
	// Floor is set with Reset only. It is the value to which the tokens of the namespace were
	// last raised, by a failover that may have lost grants, or by an operator. Tokens granted
	// before are at most Floor, later ones are above it (I2). A shard that is not listed is free:
	// a claim of it matches with the zero Owner, and with Owner{Token: Floor}. 0 if tokens were
	// never raised, or if the backend learns of a raise only when it is opened again.
	Floor Token
}

// Limits are a backend's bounds and habits. Constant after opening.
type Limits struct {
	// BatchItems is how many items of Acquire, Transfer, Release, Commit or Evict
	// one round trip carries. Calls may have more: the backend splits them.
	BatchItems int
	// CommitCalls is the number of calls of Commit at once beyond which the commits of one
	// process are no faster. Core makes at most so many, unless some take long. 0 counts as 1.
	CommitCalls int
	// WriteOps and WriteBytes bound one Write: its operations, and the sum of the
	// lengths of its keys and values. Above, ErrTooLarge before anything is sent.
	WriteOps   int
	WriteBytes int
	// PollPeriod is how late a change may be reported where the store is polled and
	// changes are expected; 0 where it pushes.
	PollPeriod time.Duration
	// IdlePollPeriod is how late the first change after a quiet time may be reported,
	// or one whose notification was lost; 0 where that is PollPeriod.
	IdlePollPeriod time.Duration
	// MinTTL is the least Member.TTL that was measured to work on this store.
	MinTTL time.Duration
	// RecordsStay says that nothing can remove a record of a shard once it is made, so that
	// those of free locks stay (an exception from rule R2): one for each name.
	RecordsStay bool
}

// Info describes an open backend. Constant after opening; holds no credentials.
type Info struct {
	Backend   string // the Opener's name, such as "sqlite"
	Namespace string
	StoreID   string // the namespace's identity (rule I1)
	Limits    Limits
	// Rollback says what the store may have lost, if the opening found that its history is
	// another than on record, and recorded that. Empty: nothing, or the store does not say.
	Rollback string
}

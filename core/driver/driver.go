package driver

import "context"

// Backend is one namespace in one store. All methods are safe for concurrent
// use; the caller's context is the only time-out of a call (X1), and the context
// given when opening is not used after opening returned.
//
// Opening proves on a scratch key that the store honours its conditions, with
// two conflicting conditional writes and a stale compare, and refuses a store
// that does not (P1). It reads the namespace's identity: a random id written
// once, and a base that is added to the store's revision to give a token, so
// that an operator can raise the floor after a restore. Only with an explicit
// option (Create) does it write a missing one; without it a missing identity is
// an error, because it may mean a wiped store (I1).
//
// Some stores can lose their last acknowledged writes in a failover and go on. The backend of
// such a store has an incarnation: a value of the store's, such as PostgreSQL's timeline, that
// differs between any two of its histories (I2). The identity records it.
//
//   - Acquire and Transfer take effect only under the recorded incarnation, in the same
//     atomic step.
//   - A call that finds another one records it and, in the same step, raises the base, so
//     that the next token is the store's clock in microseconds since 1970. It raises the token
//     of every shard's record as well, so that no earlier lease is current. The call is
//     ErrRetry.
//   - So no token is granted twice, and of two failovers the later one's tokens are greater,
//     whatever the store forgot.
//   - If the clock is not above all earlier tokens, every call is ErrStoreChanged until an
//     operator raises the base.
//   - View.Floor says that it happened.
//
// A store without incarnations leaves that to an operator, and its documentation says when.
//
// A backend may offer fences beside Commit, for writes of the application's own in the
// same store. Such a write takes effect, in one atomic step with the check, if and only if
// a commit's fence would be current there (F1).
//
// A record is damaged if no version of this software writes such a one, or if it is longer
// than the longest. Nothing in it is believed (D1).
//
//   - Observe leaves it out and names it in View.Damaged. Of a member whose metadata cannot be
//     read only these are left out.
//   - What needs the record has no effect and fails with *DamagedError: a claim or transfer of
//     the shard whose record or head it is, a commit to it, a read of that head, log or item,
//     an update of the member whose record it is.
//   - Some stores notice a damaged head only after they granted the claim. Its outcome is
//     unknown then, and the process's next claim of the shard fails with *DamagedError.
//   - Releasing a lease whose shard's record is damaged is a successful no-op.
//   - All else goes on.
//
// Errors are of the closed set of rule E1 or unknown. A backend does not retry
// writes, and switches off what its client library would retry by itself (E2).
// Names, sizes and numbers are checked with this package's Check functions
// before anything is sent.
type Backend interface {
	// Info returns what is constant after opening.
	Info() Info

	// Join creates the member's session, under an id that core made up for this
	// attempt (M3). A record per node label serialises joins: joining is one
	// compare-and-set on it that creates the member record and, with Supersede,
	// deletes exactly the session that the label's record names. A join that loses
	// that race is ErrRetry. A late or repeated join fails on the compare with
	// ErrConflict: nothing ever revives an id. Without Supersede several sessions may
	// live under one label; they share nothing.
	//
	// Labels may change with every restart, so a join under a new one removes records
	// of labels under which nobody lives, once there are more than MaxIdleLabels of them.
	// Every removal changes one permanent record of the namespace, and every join compares
	// that record in its atomic step. Else a join that expects to find no record of its label
	// could succeed late, after one was made and removed again; so it fails with ErrRetry. A
	// removal takes effect only if the label's record is as it was before its sessions were
	// found absent.
	Join(ctx context.Context, m Member) (Session, error)

	// Observe blocks until something changed since the query's cursor and returns
	// it. An empty cursor returns the full state at once, with Reset, and so does
	// a cursor that the store can no longer serve; otherwise the page holds every
	// shard and member whose state differs from that at the cursor, departures
	// included, and the beats asked for. Intermediate states may be merged; time
	// never goes backwards, not over several calls of one Backend either, nor over a
	// crash of the store. The view may include the head of a shard that changed, if record
	// and head are of one atomic state; that saves a successor a read (O1).
	//
	// A change is reported at once where the store pushes, within Limits.PollPeriod
	// elsewhere, and within Limits.IdlePollPeriod after a quiet time. The call ends
	// promptly with its context. One outstanding call per process is enough, and a
	// slow reader costs bounded memory (O2). With no change an idle namespace costs
	// the store only heartbeats and the blocked calls, or one indexed read per poll
	// period; heartbeats not asked for wake nobody (O3).
	Observe(ctx context.Context, q ObserveQuery) (*View, error)

	// ReadLog returns at most max entries of one shard's log after the given one,
	// contiguous from after+1, and the shard's head, without blocking (L2). A
	// reader sees a prefix of the log, never a later entry before an earlier one,
	// whatever commits concurrently. With max 0 it reads the head only. If the
	// entry after+1 was trimmed it returns *TrimmedError (L3). The page may be
	// shorter than max where a limit of the store asks for it, but is never empty
	// while there are entries after the given one and max is positive.
	ReadLog(ctx context.Context, shard ShardID, after Seq, max int) (*LogPage, error)

	// TailLog blocks until any shard of the namespace has entries since the cursor
	// and returns at most max of them, or all of the first commit where it has
	// more: each shard's in order and contiguous since the cursor, each entry at least
	// once (L4). An empty cursor,
	// and one that the store can no longer serve or from which it would have to
	// skip, is answered at once with Reset and every shard's head, so that the
	// reader catches up with ReadLog. It never skips in silence.
	TailLog(ctx context.Context, since Cursor, max int) (*TailPage, error)

	// Get returns an item, nil without an error if there is none. Linearizable: it
	// sees every commit acknowledged before the call.
	Get(ctx context.Context, shard ShardID, key string) (*Item, error)

	// List returns the shard's items whose key begins with prefix, byte by byte,
	// in the order of their keys' bytes: the first limit of them, or all if limit is 0;
	// ErrInvalid if it is negative (L2). The limit also bounds the values that are read
	// from the store. Linearizable, as Get.
	List(ctx context.Context, shard ShardID, prefix string, limit int) ([]Item, error)

	// Close unblocks what is blocked, with ErrClosed, and leaves no goroutine,
	// connection or timer (E3). A write in flight ends with an unknown outcome. It does not end sessions: their records stay until
	// they are closed, superseded or evicted. A second Close does nothing.
	Close() error
}

// Session is a member's claim to be alive. All methods are safe for concurrent
// use. After eviction or close Beat, Acquire, Transfer, Update and Evict answer
// ErrSessionLost, for ever; Release is a successful no-op; Commit is decided by
// the shard's record alone (M1).
//
// Batches: the results are one per item, in order, and independent: one item
// being held, stale or failed does not affect another (A4). A shard or session
// occurs at most once in a batch. An unknown outcome is a result of its item. A
// call-level error of the closed set means that no item was applied; any other
// call-level error means that every item is unknown. n items take O(n /
// BatchItems) round trips, pipelined where the store allows. In a store whose
// transactions are all or nothing, one denied item makes its transaction fail. The backend
// then reads the items, answers the denied ones, and sends the others in a new transaction
// (A6). Neither that nor splitting is a retry.
//
// A server may take less in one request than it did when the backend was opened. If it
// refuses a request because of all its items together, none is applied, and ErrTooLarge is
// the error of the call or of each item. Core sends them again in smaller calls, until an item
// is refused alone. If the store ends the connection instead, their outcome is unknown (A4).
//
// Answers to own writes show whether the store is still the same (I1). ErrStoreChanged
// is the error if the identity changed, if the revision of an own write is lower than that of
// an earlier one, or if a heartbeat found an older version than the last acknowledged
// heartbeat wrote. Sometimes only the answer to a write that was applied shows it. A heartbeat
// is then ErrStoreChanged all the same. Any other write is unknown, since ErrStoreChanged
// would say that it was not applied (E1). Every later call is ErrStoreChanged.
type Session interface {
	// ID is the id that Member.Session gave to Join.
	ID() SessionID

	// Beat gives the session's record a greater version. It succeeds if and only if
	// the record exists, whatever became of earlier beats. It is the one call per
	// process and interval, and its cost does not depend on how many shards are
	// held (M1). It never queues behind the application's writes (E4), and changes
	// no token (A2).
	//
	// Calls overlap: core sends another heartbeat, up to 24, while one has no
	// answer. Beat may return success because of another Beat of the session, if that one's
	// write became visible after this one began: it proves as much. Each goes over a
	// connection on which no other heartbeat waits for its answer, and where the store has
	// several servers, to another server (E4). If one server has not answered a heartbeat while
	// another answers a later one, the backend stops using the first for every call: the calls
	// in progress on it end, a write with an unknown outcome, and new ones go elsewhere. After a
	// heartbeat that ended with its context the next one goes to another server as well. The
	// backend starts no timer for any of it.
	Beat(ctx context.Context) error

	// Acquire claims shards. At every point of the store's order at most one
	// (session, token) is current for a shard. A claim on a shard whose holder has
	// a member record fails unless it preempts; the store decides that in the same
	// atomic step, as well as that the claimer's own record exists (A1). The new
	// token is greater than every token granted before in the namespace (A2). A
	// repeated claim with the same Seen finds its own earlier success and returns
	// the same fence (A3). A denied claim is *HeldError with the record as it is.
	// A claim of a lock that was seen free matches while the lock is free, whatever the token:
	// its record names no session, or there is none (R2).
	// Preemption takes effect only from exactly the token seen (A5).
	Acquire(ctx context.Context, claims []Claim) ([]AcquireResult, error)

	// Transfer gives leases of this session to another session, or anew to itself,
	// each with a new token (A5, A2). It takes effect only from exactly the fence
	// named, which is dead from that point of the store's order; a fence that is
	// not current is *FencedError. A successor without a member record is
	// ErrNoTarget, and the fence stays valid. Repeated with the same fence it finds
	// its own earlier success and returns the same new fence (A3).
	Transfer(ctx context.Context, to []Transfer) ([]AcquireResult, error)

	// Release frees exactly the leases named, and keeps their tokens as the floor;
	// an older or unknown fence is a successful no-op. Afterwards another session
	// can acquire at once (R1). A nil error means that every fence named is dead. The
	// store looks at the record, and not at the caller.
	//
	// Once a lock (IsLock) is free and has no head, its record is removed, at once or later
	// (R2), unless Limits.RecordsStay. An observer learns of the release all the same: from a
	// view that shows it as that of any lease, or from a Reset that does not list the lock.
	Release(ctx context.Context, fences []Fence) error

	// Commit writes under leases, each Write atomic by itself and independent of
	// the others. A write takes effect, as one atomic step, if and only if at its
	// point of the store's order its fence is the shard's latest granted lease,
	// neither released nor transferred nor preempted, and its number is the next
	// (F1). A dead fence is *FencedError, even where a precondition would have
	// failed as well; a failed precondition or number is *ConflictError. Neither
	// has any effect (F2). Entries are numbered on from Head.Seq, carry the fence's
	// token and never change; numbers never restart (L1, L3). Eviction of the
	// session alone does not fence: only a new grant does. A write's fence may name
	// any session: the store looks at the record, not at the caller.
	//
	// In some stores others can lock a shard's record, such as an application's transaction
	// with FenceTx of a SQL backend. In a call with several writes, one whose record is locked
	// is not made, and its result matches ErrRetry; the others are not delayed. In a call with
	// one write the write waits for the lock, until ctx ends.
	Commit(ctx context.Context, writes []Write) ([]CommitResult, error)

	// Update replaces the mutable part of the session's own record, and nothing else of
	// it: identity, node label and TTL stay. It takes effect if and only if the record
	// exists and its Update is below st.Update, in one atomic step; so updates that
	// arrive late or twice never undo later ones. If st.Update is the record's number, Update
	// succeeds and changes nothing, so that an update with an unknown outcome can be repeated;
	// if it is lower, the error is ErrConflict. A session without a record is ErrSessionLost,
	// and stays so. Observers learn of an update as of a join (O1). An update does not change
	// the version that heartbeats change: it does not count as a heartbeat, and none
	// fails because of it (M4).
	Update(ctx context.Context, st MemberState) error

	// Evict removes exactly the versions named of other sessions' records; a
	// record that has changed since is untouched and reported so (M2).
	Evict(ctx context.Context, suspects []Suspect) ([]EvictResult, error)

	// Close removes the session's record: one write, which frees everything it
	// held. Closing a session whose record is gone is no error.
	Close(ctx context.Context) error
}

// NewOpener returns the Opener of a backend by its name. Its settings are decoded into
// an S, which open gets.
func NewOpener[S any, B Backend](name string, open func(ctx context.Context, s *S) (B, error)) Opener {
	var zero S
	return Opener{Name: name, Settings: zero, Open: func(ctx context.Context, decode func(any) error) (Backend, error) {
		var s S
		if err := decode(&s); err != nil {
			return nil, err
		}
		b, err := open(ctx, &s)
		if err != nil {
			return nil, err // and not a Backend that holds a nil
		}
		return b, nil
	}}
}

// Opener is the plain value by which a backend is chosen in configuration. Open
// calls decode with a pointer to the backend's own options struct to have it
// filled; unknown fields are decode's to refuse.
type Opener struct {
	Name string
	// Settings is the zero value of that struct, with yaml tags, from which a reader
	// of configuration knows the keys, and which of them are secret: those whose type
	// is a string with a Format method. Nil where it is not known.
	Settings any
	Open     func(ctx context.Context, decode func(any) error) (Backend, error)
}

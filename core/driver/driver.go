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
// A store that can lose its acknowledged tail in a failover and go on says so by an
// incarnation, which differs between two histories of it. The identity records it.
// Acquire and Transfer take effect only under the recorded one, in the same atomic
// step. A call that meets another one first records it and, in one step with that,
// raises what only grows: the base, so that the next token is the store's clock in
// microseconds since 1970, which is more than all grants before, and with it the token of
// every record, so that no lease of before is current; such a call is ErrRetry. So no
// token is granted twice, and of two failovers the later one's tokens are greater,
// whatever the store forgot. Where the clock is behind the tokens, every call is
// ErrStoreChanged until an operator raises the floor. View.Floor says that it happened
// (I2). A store without incarnations leaves that to an operator, and its documentation
// says when.
//
// A backend may offer fences beside Commit, for writes of the application's own in the
// same store. Such a write takes effect, in one atomic step with the check, if and only if
// a commit's fence would be current there (F1).
//
// A record that no release writes, or that is longer than any, is damaged, and
// nothing in it is believed (D1). Observe leaves it out and names it in View.Damaged;
// metadata of a member that cannot be read are left out alone. What needs the record
// has no effect and fails with *DamagedError: a claim or transfer of the shard whose
// record or head it is, a commit to it, a read of that head, log or item, an update of
// the member whose record it is. A store that
// learns of a damaged head only when it has granted the claim answers with an unknown
// outcome, and refuses this process's next claim. Releasing a lease whose shard's
// record is damaged is a successful no-op. All else goes on.
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
	// of labels under which nobody lives, once there are more than MaxIdleLabels. A
	// removal changes one permanent record of the namespace that every join compares
	// in its atomic step: a join that was sent before the removal fails with ErrRetry
	// although it finds no label, as it was to. A removal takes effect only if the
	// label's record is as it was before its sessions were found absent.
	Join(ctx context.Context, m Member) (Session, error)

	// Observe blocks until something changed since the query's cursor and returns
	// it. An empty cursor returns the full state at once, with Reset, and so does
	// a cursor that the store can no longer serve; otherwise the page holds every
	// shard and member whose state differs from that at the cursor, departures
	// included, and the beats asked for. Intermediate states may be merged; time
	// never goes backwards, not over several calls of one Backend either, nor over a
	// crash of the store. A shard that changed may have its head beside its record, as
	// one atomic step left the two, so that a successor needs no read (O1).
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
	// and returns about max of them at the most: each shard's in order and
	// contiguous since the cursor, each entry at least once (L4). An empty cursor,
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
	// connection or timer (E3). It does not end sessions: their records stay until
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
// BatchItems) round trips, pipelined where the store allows; where a store's
// transaction is all or nothing, the denied items of a failed one are read once
// and answered, and the rest sent again (A6). That, and splitting, is no retry.
//
// A server may take less in one request than it did when the backend was opened. Where it
// refuses items for what they are together, ErrTooLarge is the error of the call or of each
// of them, none is applied, and the caller sends them again in smaller calls, until one is
// refused alone. Where the store ends the connection instead, their outcome is unknown (A4).
//
// Results of own writes are checked against the namespace's identity and the
// revisions acknowledged before: a changed identity, a revision that stepped
// back between own writes, or a heartbeat that replaced a version older than the
// last acknowledged one is ErrStoreChanged (I1). Where only the answer to a write shows
// that the store went back, a heartbeat is ErrStoreChanged, and the outcome of any other
// write that was applied is unknown (E1): every later call is ErrStoreChanged.
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
	// answer. A call may be answered by the write of another, if that became visible after
	// this call began: it proves as much. Each goes over a connection that owes no answer to another heartbeat, and
	// where the store has several servers, to another server (E4). A server that stays
	// silent to a heartbeat while another server answers a later one is left: the calls
	// under way on it end, a write with an unknown outcome, and new ones go elsewhere.
	// After a call that ended with its context, too, the next one goes to another
	// server. The backend starts no timer for any of it.
	Beat(ctx context.Context) error

	// Acquire claims shards. At every point of the store's order at most one
	// (session, token) is current for a shard. A claim on a shard whose holder has
	// a member record fails unless it preempts; the store decides that in the same
	// atomic step, as well as that the claimer's own record exists (A1). The new
	// token is greater than every token granted before in the namespace (A2). A
	// repeated claim with the same Seen finds its own earlier success and returns
	// the same fence (A3). A denied claim is *HeldError with the record as it is.
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
	// can acquire at once (R1). A nil error means that every fence named is dead.
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
	// In a call of several writes, a store in which others can lock a shard's record, such
	// as an application's transaction (FenceTx), leaves out those whose record is locked:
	// their results match ErrRetry, and the others are not delayed. A write that is alone
	// in its call waits for the record.
	Commit(ctx context.Context, writes []Write) ([]CommitResult, error)

	// Update replaces the mutable part of the session's own record, and nothing else of
	// it: identity, node label and TTL stay. It takes effect if and only if the record
	// exists and its Update is below st.Update, in one atomic step; so updates that
	// arrive late or twice never undo later ones. The number that the record has already
	// is a success without effect, which makes an update whose outcome is unknown safe to
	// repeat; a lower one is ErrConflict. A session without a record is ErrSessionLost,
	// and stays so. Observers learn of an update as of a join (O1). It changes no
	// version of a heartbeat, which neither counts as one nor fails because of it (M4).
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

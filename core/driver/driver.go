package driver

import "context"

// Backend represents one namespace in one store. All methods are safe for concurrent use. Only the
// caller's context limits the duration of a call (X1). The context passed to a backend's Open is
// not used after Open has returned.
//
// Open tests the store on a scratch key, with two conflicting conditional writes and a stale
// compare. If the store does not honor the conditions of these writes, Open refuses the store (P1).
// Open then reads the namespace's identity: a base and a random id that is written only once. A
// token is the sum of the base and the store's revision. After a restore, an operator can raise the
// floor by raising the base. Open creates a missing identity only if the Create option is set.
// Without this option, a missing identity is an error, because the store may have been wiped (I1).
//
// After a failover, some stores may continue without their last acknowledged writes. The backend of
// such a store reports an incarnation (I2): a value, such as PostgreSQL's timeline, that differs
// between any two of the store's histories. The identity records the incarnation.
//
//   - Acquire and Transfer take effect only under the recorded incarnation, which the backend
//     checks in the same atomic step.
//   - A call that finds a different incarnation records it. In the same step, the call raises the
//     base so that the next token equals the store's clock, in microseconds since 1970. The call
//     also raises the token in every shard's record, so that no earlier lease is current. After
//     recording a new incarnation, the call returns ErrRetry.
//   - Therefore, no token is granted twice. Every token granted after a failover is greater than
//     every earlier token, no matter what the store has lost.
//   - If the clock does not exceed all earlier tokens, every call returns ErrStoreChanged until an
//     operator raises the base.
//   - View.Floor reports the value to which the tokens were raised.
//
// For a store without incarnations, an operator raises the base in the cases that the backend's
// documentation describes.
//
// Besides Commit, a backend may offer other ways to fence the application's own writes in the same
// store. The store then checks the fence and applies the write in one atomic step. The write takes
// effect only if its fence is current when the store applies that step (F1).
//
// A record is damaged if no version of this software could have written it, or if it is longer than
// any valid record. A backend trusts no part of a damaged record (D1).
//
//   - Observe leaves out a damaged record and lists it in View.Damaged. If only a member's metadata
//     is damaged, Observe leaves out only the metadata.
//   - A call that needs a damaged record has no effect and fails with *DamagedError. The calls that
//     need a record are claims, transfers and commits for its shard; reads of a head, log or item;
//     and updates to its member.
//   - Some stores detect a damaged head only after they have granted a claim to its shard. The
//     outcome of that claim is then unknown, and the process's next claim to the shard fails with
//     *DamagedError.
//   - If a shard's record is damaged, releasing the shard's lease succeeds and has no effect.
//   - A damaged record affects no other call.
//
// Every error either belongs to the closed set of rule E1 or means that the outcome is unknown. A
// backend does not retry writes, and disables the retries of its client library (E2). A backend
// checks names, sizes and numbers with this package's Check functions before it sends anything.
type Backend interface {
	// Info returns the properties that stay constant once the backend is open.
	Info() Info

	// Join creates the member's session, under an id that core made for this attempt (M3). Each
	// node label has a record that serializes joins. A join is one compare-and-set on that record,
	// and the same step creates the member record. With Supersede, the step also deletes exactly
	// the session in the label's record. If several processes on a host start together, a join may
	// lose the race for the label's record. The join then rereads the record and repeats the step
	// until it succeeds or ctx ends. With Supersede, a join that loses the race returns ErrRetry.
	// The compare-and-set makes a late or repeated join fail with ErrConflict, so no join ever
	// revives an id. Without Supersede, several independent sessions may live under one label.
	//
	// Labels may change with every restart. If more than MaxIdleLabels labels have no live member,
	// a join under a new label removes the records of some of these labels. Every removal changes
	// one permanent record of the namespace, and every join compares that record in its atomic
	// step. Without this comparison, a late join that expects its label to have no record could
	// succeed after another join created the record and a removal deleted it. With the comparison,
	// such a join fails with ErrRetry. A removal takes effect only if the label's record has not
	// changed since the label's sessions were found absent.
	Join(ctx context.Context, m Member) (Session, error)

	// Observe blocks until something has changed since the query's cursor, and returns the changes.
	// If the cursor is empty, or the store can no longer serve it, Observe returns the full state
	// immediately, with Reset. Otherwise, the View contains the requested beats and every shard and
	// member that has changed since the cursor, including members that are gone. Several changes to
	// one record may be merged. Views never go back in time, even across calls to one Backend or
	// across a crash of the store. A View may include a changed shard's head if the shard's record
	// and head come from one atomic state. A successor that gets the head in a View saves one read
	// (O1).
	//
	// If the store pushes changes, Observe reports a change immediately. Otherwise, Observe reports
	// the change within Limits.PollPeriod, or within Limits.IdlePollPeriod after a quiet time. The
	// call ends promptly when its context ends. One outstanding call per process is enough. A slow
	// reader needs only limited memory (O2). While a namespace does not change, the store handles
	// only its heartbeats, and either the blocked calls or one indexed read per poll period. A
	// heartbeat wakes a caller only if the caller's query lists the session (O3).
	Observe(ctx context.Context, q ObserveQuery) (*View, error)

	// ReadLog returns the shard's head and at most max contiguous log entries, beginning with entry
	// after+1. ReadLog does not block (L2). Despite concurrent commits, a reader always sees a
	// prefix of the log, and never sees an entry without all earlier entries. If max is 0, ReadLog
	// returns only the head. If entry after+1 was trimmed, ReadLog returns *TrimmedError (L3). The
	// store's limits may make the page shorter than max. If max is positive and the log has entries
	// beyond after, the page is not empty.
	ReadLog(ctx context.Context, shard ShardID, after Seq, max int) (*LogPage, error)

	// TailLog blocks until any shard of the namespace has new entries since the cursor. TailLog
	// returns at most max entries, or all entries of the first commit if that commit contains more.
	// Each shard's entries since the cursor arrive in order and without gaps, and each entry
	// arrives at least once (L4). If the cursor is empty, or the store cannot serve it without a
	// gap, TailLog returns immediately with Reset and every shard's head. The reader then catches
	// up with ReadLog. TailLog never skips entries silently.
	TailLog(ctx context.Context, since Cursor, max int) (*TailPage, error)

	// Get returns an item, or nil and no error if the item does not exist. Get is linearizable: it
	// sees every commit acknowledged before the call.
	Get(ctx context.Context, shard ShardID, key string) (*Item, error)

	// List returns the shard's items whose keys begin with the bytes of prefix, in byte order. List
	// returns the first limit items, or all items if limit is 0. If limit is negative, the error is
	// ErrInvalid (L2). The limit also applies to the number of values that List reads from the
	// store. List is linearizable, like Get. List leaves out items with invalid keys, but Views
	// report these items (D1).
	//
	// If largest is positive, List does not return larger values. For an item with a larger value,
	// List sets Damaged instead (D1). If limit is also positive, List returns at most MaxListBytes
	// of values, and sets Damaged for each further item. During such a read, the process needs
	// about MaxListBytes of memory, regardless of the size of the stored values. List may read the
	// items in several linearizable steps. If largest is 0, values may have any size.
	List(ctx context.Context, shard ShardID, prefix string, limit, largest int) ([]Item, error)

	// Close makes blocked calls return ErrClosed, and leaves no goroutine, connection or timer
	// behind (E3). The outcome of a write in flight is unknown. Close does not end sessions, so
	// their records stay until the sessions are closed, superseded or evicted. A second Close does
	// nothing.
	Close() error
}

// Session is the record that shows that a member is alive. All methods are safe for concurrent use.
// After eviction or Close, Beat, Acquire, Transfer, Update and Evict permanently return
// ErrSessionLost, and Release is a successful no-op. Whether Commit succeeds depends on the shard's
// record alone (M1).
//
// A batch call returns one result per item, in order. The items are independent: an item that is
// held, stale or failed does not affect the others (A4). A shard or session occurs at most once in
// a batch. If the outcome of one item is unknown, only that item's result contains the error. If
// the call itself returns an error from the closed set, no item was applied. After any other error
// from the call, the outcome of every item is unknown. A batch of n items takes O(n / BatchItems)
// round trips, which are pipelined if the store allows it. If a store applies either all of a
// transaction or none of it, one denied item makes the whole transaction fail. The backend then
// reads the items, returns results for the denied items, and sends the others in a new transaction
// (A6). Splitting a batch, or sending items again in this way, does not count as a retry.
//
// After the backend was opened, a server may lower its limit for one request. If the server refuses
// a request because the items together are too large, no item is applied, and the call or each item
// fails with ErrTooLarge. Core then sends the items in smaller calls, down to single items. If the
// store closes the connection instead, the outcome of the items is unknown (A4).
//
// The answers to a session's writes show whether the store was replaced (I1). The error is
// ErrStoreChanged if the identity changed, or if a write by the session has a lower revision than
// an earlier write. The error is also ErrStoreChanged if a heartbeat finds an older version than
// the one that the last acknowledged heartbeat wrote. Sometimes, only the answer to an applied
// write reveals the change. If that write is a heartbeat, Beat still returns ErrStoreChanged. Any
// other write then has an unknown outcome, because ErrStoreChanged would mean that the write was
// not applied (E1). After such a change, every later call returns ErrStoreChanged.
type Session interface {
	// ID returns the Member.Session that was passed to Join.
	ID() SessionID

	// Beat gives the session's record a higher version. The success of Beat depends only on whether
	// the record exists, not on earlier beats. Beat is the only periodic call: each process calls
	// it once per heartbeat interval. The cost of a Beat does not depend on how many shards the
	// process holds (M1). Beat never queues behind the application's writes (E4), and changes no
	// token (A2).
	//
	// Calls may overlap, because core may have up to 24 heartbeats in flight. Beat may also succeed
	// because another Beat of the session became visible after this call began. Each call uses a
	// connection on which no other heartbeat is waiting for an answer. If the store has several
	// servers, a heartbeat that begins while others are unanswered goes to a server with the fewest
	// of them (E4).
	//
	// If a server has not answered a heartbeat by the time another server answers a later
	// heartbeat, the backend stops using the silent server. The backend ends the calls in progress
	// on that server, and the outcomes of writes among these calls are unknown. New calls go to
	// other servers. If a heartbeat's context ends first, the next heartbeat also goes to another
	// server. The backend needs no timer to detect a silent server.
	Beat(ctx context.Context) error

	// Acquire claims shards. At every point in the store's order, at most one (session, token) pair
	// is current for a shard. A claim that does not preempt fails if the shard's holder has a
	// member record. The store checks for the holder's record and for the claimer's own record in
	// the same atomic step (A1). The new token is greater than every token granted before in the
	// namespace (A2). Repeating a successful claim with the same Seen returns the same fence (A3).
	// A denied claim returns *HeldError with the current record. If a claim saw a lock as free, the
	// claim matches while the lock is free, regardless of the lock's token. A lock is free if its
	// record contains no session, or if it has no record (R2). Preemption takes effect only if the
	// record still has exactly the token in the claim (A5).
	Acquire(ctx context.Context, claims []Claim) ([]AcquireResult, error)

	// Transfer gives leases of this session to another session, or to this session again. Each
	// lease gets a new token (A5, A2). A transfer takes effect only if exactly the given fence is
	// current. As soon as the store has applied the transfer, the old fence is dead. If the fence
	// is not current, the result is *FencedError. If the successor has no member record, the result
	// is ErrNoTarget and the fence stays valid. Repeating a successful transfer with the same fence
	// returns the same new fence (A3).
	Transfer(ctx context.Context, to []Transfer) ([]AcquireResult, error)

	// Release frees exactly the given leases, and keeps their tokens as the floor. If a fence is
	// outdated or unknown, releasing it is a successful no-op. After the release, another session
	// can acquire the shards immediately (R1). A nil error means that every given fence is dead.
	// The store checks the record, not the caller.
	//
	// Unless Limits.RecordsStay is set, the record of a lock (IsLock) is removed once the lock is
	// free and has no head (R2). The removal may be delayed. An observer still learns of the
	// release, because a view either shows the release or, with Reset, omits the lock.
	Release(ctx context.Context, fences []Fence) error

	// Commit writes under leases. Each Write is atomic, and independent of the others. A write
	// takes effect, in one atomic step, only if two conditions hold at its point in the store's
	// order (F1). First, its fence must identify the shard's latest lease, and that lease must not
	// have been released, transferred or preempted. Second, its number must be the next number. If
	// the fence is dead, the error is *FencedError, even if a precondition would have failed as
	// well. If a precondition fails or the number is wrong, the error is *ConflictError. In both
	// cases, the write has no effect (F2).
	//
	// Entries are numbered from Head.Seq+1, carry the fence's token and never change. Entry numbers
	// never restart (L1, L3). Evicting a session does not fence its writes. Only a new grant of the
	// shard fences the writes of an evicted session. A write's fence may contain any session,
	// because the store checks the record, not the caller.
	//
	// In some stores, another writer can lock a shard's record. For example, an application's
	// transaction that uses the FenceTx of a SQL backend locks the record. If a call has several
	// writes and one shard's record is locked, the write to that shard is not applied, and its
	// result matches ErrRetry. The call's other writes are not delayed. If a call has only one
	// write, that write waits for the lock until ctx ends.
	Commit(ctx context.Context, writes []Write) ([]CommitResult, error)

	// Update replaces the mutable part of the session's own record. The record's identity, node
	// label and TTL stay the same. The update takes effect, in one atomic step, only if the record
	// exists and the record's Update is below st.Update. A late or repeated update therefore never
	// undoes a later update. If st.Update equals the record's number, Update succeeds and changes
	// nothing, so an update with an unknown outcome can be repeated. If st.Update is lower, the
	// error is ErrConflict. If the session has no record, Update permanently returns
	// ErrSessionLost. Views report updates as they report joins (O1). An update does not change the
	// heartbeats' version, does not count as a heartbeat, and makes no heartbeat fail (M4).
	Update(ctx context.Context, st MemberState) error

	// Evict removes exactly the given versions of other sessions' records. If a record's version is
	// different, Evict leaves the record in place and reports its current version (M2).
	Evict(ctx context.Context, suspects []Suspect) ([]EvictResult, error)

	// Close removes the session's record in one write, which frees everything that the session
	// held. Closing a session whose record is gone is not an error.
	Close(ctx context.Context) error
}

// NewOpener returns the Opener of a backend with the given name. The Opener decodes the settings
// into a value of type S and passes a pointer to this value to open.
func NewOpener[S any, B Backend](name string, open func(ctx context.Context, s *S) (B, error)) Opener {
	var zero S
	return Opener{Name: name, Settings: zero, Open: func(ctx context.Context, decode func(any) error) (Backend, error) {
		var s S
		if err := decode(&s); err != nil {
			return nil, err
		}
		b, err := open(ctx, &s)
		if err != nil {
			return nil, err // not a Backend that holds a nil
		}
		return b, nil
	}}
}

// Opener opens a backend that the configuration selects by name. The Open field passes decode a
// pointer to the backend's options struct. The decode function must fill in that struct and refuse
// unknown fields.
type Opener struct {
	Name string
	// Settings is the zero value of the backend's options struct, with yaml tags. Settings shows
	// which keys the configuration may contain, and which keys are secret. A key is secret if its
	// type is a string type with a Format method. Settings is nil if the keys are not known.
	Settings any
	Open     func(ctx context.Context, decode func(any) error) (Backend, error)
}

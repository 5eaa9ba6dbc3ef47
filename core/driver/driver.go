package driver

import "context"

// Backend is one namespace in one store. All methods are safe for concurrent use. The caller's
// context is the only time-out of a call (X1). The context given for opening is not used after
// opening has returned.
//
// Opening tests whether the store honours conditions, with two conflicting conditional writes and a
// stale compare on a scratch key. It refuses a store that does not honour them (P1). It then reads
// the namespace's identity: a random id written once, and a base. The base is added to the store's
// revision to give a token, so that an operator can raise the floor after a restore. Opening writes
// a missing identity only with an explicit option (Create). Without the option, a missing identity
// is an error, because the store may have been wiped (I1).
//
// Some stores can lose their last acknowledged writes in a failover and continue. The backend of
// such a store reports an incarnation (I2). This is a value, such as PostgreSQL's timeline, that
// differs between any two of the store's histories. The identity records the incarnation.
//
//   - Acquire and Transfer take effect only under the recorded incarnation. They check it in the
//     same atomic step.
//   - A call that finds another incarnation records it. In the same step, it raises the base, so
//     that the next token is the store's clock in microseconds since 1970. It also raises the token
//     of every shard's record, so that no earlier lease is current. The call returns ErrRetry.
//   - Therefore, no token is granted twice. Tokens granted after a later failover are always
//     greater, whatever the store forgot.
//   - If the clock is not above all earlier tokens, every call returns ErrStoreChanged until an
//     operator raises the base.
//   - View.Floor reports the raise.
//
// For a store without incarnations, an operator raises the base. The backend's documentation says
// when.
//
// A backend may offer fences other than Commit, for the application's own writes in the same store.
// Such a write and its check are one atomic step. The write takes effect if and only if a commit's
// fence would be current there (F1).
//
// A record is damaged if no version of this software writes such a record, or if it is longer than
// any valid record. A backend trusts no part of it (D1).
//
//   - Observe leaves out a damaged record and names it in View.Damaged. If only a member's metadata
//     cannot be read, Observe leaves out only the metadata.
//   - A call that needs the record has no effect and fails with *DamagedError. Such calls are
//     claims and transfers of its shard, commits to that shard, reads of that head, log or item,
//     and updates of its member.
//   - Some stores notice a damaged head only after they have granted the claim. The claim's outcome
//     is then unknown, and the process's next claim of the shard fails with *DamagedError.
//   - Releasing a lease whose shard's record is damaged is a successful no-op.
//   - All other calls continue to work.
//
// Errors belong to the closed set of rule E1, or leave the outcome unknown. A backend does not
// retry writes, and disables the retries of its client library (E2). It checks names, sizes and
// numbers with this package's Check functions before it sends anything.
type Backend interface {
	// Info returns the values that are constant after opening.
	Info() Info

	// Join creates the member's session, under an id that core made for this attempt (M3). A record
	// per node label serialises joins. Joining is one compare-and-set on it that creates the member
	// record. With Supersede, the same step deletes exactly the session that the label's record
	// names. The processes of a host start together, so a join may lose the race for this record.
	// It then reads the label again and joins, as long as ctx lasts. With Supersede, the join
	// returns ErrRetry instead. The compare makes a late or repeated join fail with ErrConflict, so
	// nothing ever revives an id. Without Supersede, several sessions may live under one label;
	// they share nothing.
	//
	// Labels may change with every restart. Once there are more than MaxIdleLabels labels under
	// which no member lives, a join under a new label removes records of such labels. Every removal
	// changes one permanent record of the namespace, and every join compares that record in its
	// atomic step. Otherwise, a join that expects no record of its label could succeed late, after
	// one was made and removed again. Such a join fails with ErrRetry. A removal takes effect only
	// if the label's record has not changed since its sessions were found absent.
	Join(ctx context.Context, m Member) (Session, error)

	// Observe blocks until something has changed since the query's cursor, and returns the changes.
	// An empty cursor, or one that the store can no longer serve, returns the full state
	// immediately, with Reset. Otherwise, the page contains the requested beats and every shard and
	// member whose state differs from that at the cursor, departures included. Intermediate states
	// may be merged. Time never goes backwards, neither across calls to one Backend nor across a
	// crash of the store. If record and head belong to one atomic state, the view may include a
	// changed shard's head. This saves a successor a read (O1).
	//
	// If the store pushes changes, Observe reports a change immediately. Otherwise, it does so
	// within Limits.PollPeriod, or within Limits.IdlePollPeriod after a quiet time. The call ends
	// promptly when its context ends. One outstanding call per process is enough, and a slow reader
	// uses limited memory (O2). Without changes, a namespace costs the store only heartbeats and
	// the blocked calls, or one indexed read per poll period. Heartbeats that were not requested
	// wake no caller (O3).
	Observe(ctx context.Context, q ObserveQuery) (*View, error)

	// ReadLog returns at most max entries of one shard's log after the given one, contiguous from
	// after+1, and the shard's head, without blocking (L2). A reader sees a prefix of the log,
	// never a later entry before an earlier one, despite concurrent commits. If max is 0, it reads
	// only the head. If the entry after+1 was trimmed, it returns *TrimmedError (L3). The page may
	// be shorter than max if a limit of the store requires it. It is never empty while there are
	// entries after the given one and max is positive.
	ReadLog(ctx context.Context, shard ShardID, after Seq, max int) (*LogPage, error)

	// TailLog blocks until any shard of the namespace has entries since the cursor. It returns at
	// most max entries, or all entries of the first commit if there are more. Each shard's entries
	// are in order and contiguous since the cursor, and each entry arrives at least once (L4). If
	// the cursor is empty, can no longer be served, or would require a gap, TailLog returns
	// immediately with Reset and every shard's head. The reader then catches up with ReadLog. It
	// never skips entries silently.
	TailLog(ctx context.Context, since Cursor, max int) (*TailPage, error)

	// Get returns an item, or nil and no error if it does not exist. It is linearizable: it sees
	// every commit acknowledged before the call.
	Get(ctx context.Context, shard ShardID, key string) (*Item, error)

	// List returns the shard's items whose key begins with prefix, byte by byte, in the order of
	// their keys' bytes. It returns the first limit items, or all if limit is 0. If limit is
	// negative, the error is ErrInvalid (L2). The limit also applies to the values read from the
	// store. List is linearizable, like Get. It leaves out items under invalid keys; views name
	// them (D1).
	//
	// If largest is positive, a larger value is not returned: its item has Damaged set instead
	// (D1). If there is also a limit, the values have at most MaxListBytes in total, and each item
	// beyond that also has Damaged set. While it reads, the process holds about that many bytes,
	// however large the stored values are. The items may then be read in several steps, each
	// linearizable. If largest is 0, values may have any size.
	List(ctx context.Context, shard ShardID, prefix string, limit, largest int) ([]Item, error)

	// Close makes blocked calls return ErrClosed, and leaves no goroutine, connection or timer
	// behind (E3). A write in flight ends with an unknown outcome. Close does not end sessions:
	// their records stay until they are closed, superseded or evicted. A second Close does nothing.
	Close() error
}

// Session is a member's claim to be alive. All methods are safe for concurrent use. After eviction
// or Close, Beat, Acquire, Transfer, Update and Evict permanently return ErrSessionLost, and
// Release is a successful no-op. The shard's record alone determines whether Commit succeeds (M1).
//
// A batch has one result per item, in order. They are independent: one item that is held, stale or
// failed does not affect another (A4). A shard or session occurs at most once in a batch. An
// unknown outcome is the result of its item. A call-level error of the closed set means that no
// item was applied. Any other call-level error means that every item is unknown. n items take O(n /
// BatchItems) round trips, pipelined if the store allows. If a store's transactions are all or
// nothing, one denied item makes its transaction fail. The backend then reads the items, returns
// results for the denied ones, and sends the others in a new transaction (A6). Neither this nor
// splitting is a retry.
//
// A server may accept less in one request than it did when the backend was opened. If it refuses a
// request because of all its items together, none is applied. ErrTooLarge is then the error of the
// call or of each item. Core sends the items again in smaller calls, until an item is refused
// alone. If the store ends the connection instead, their outcome is unknown (A4).
//
// Answers to the session's own writes show whether the store is still the same (I1). The error is
// ErrStoreChanged if the identity changed, or if a write of the session has a lower revision than
// an earlier one. The error is the same if a heartbeat finds an older version than the last
// acknowledged heartbeat wrote. Sometimes only the answer to an applied write shows the change. A
// heartbeat still returns ErrStoreChanged. Any other write has an unknown outcome, since
// ErrStoreChanged would mean that it was not applied (E1). Every later call returns
// ErrStoreChanged.
type Session interface {
	// ID returns the id that Member.Session gave to Join.
	ID() SessionID

	// Beat gives the session's record a greater version. It succeeds if and only if the record
	// exists, whatever the outcome of earlier beats. It is the only regular call: one per process
	// and interval. Its cost does not depend on the number of shards held (M1). It never queues
	// behind the application's writes (E4), and changes no token (A2).
	//
	// Calls overlap: while one has no answer, core sends others, up to 24. Beat may return success
	// because of another Beat of the session whose write became visible after this call began. Each
	// call uses a connection on which no other heartbeat waits for its answer. If the store has
	// several servers, each call goes to a different server (E4).
	//
	// If one server has not answered a heartbeat while another answers a later one, the backend
	// stops using the first server. The calls in progress on it end, each write with an unknown
	// outcome, and new calls go elsewhere. If a heartbeat ends because its context ended, the next
	// heartbeat also goes to another server. The backend starts no timer for this.
	Beat(ctx context.Context) error

	// Acquire claims shards. At every point in the store's order, at most one (session, token) is
	// current for a shard. A claim on a shard whose holder has a member record fails unless it
	// preempts. The store checks this, and that the claimer's own record exists, in the same atomic
	// step (A1). The new token is greater than every token granted before in the namespace (A2). A
	// repeated claim with the same Seen finds its own earlier success and returns the same fence
	// (A3). A denied claim returns *HeldError with the current record. If a lock was seen free, a
	// claim to it matches while the lock is free, whatever the token. A lock is free if its record
	// names no session, or it has no record (R2). Preemption takes effect only if the record still
	// has exactly the token seen (A5).
	Acquire(ctx context.Context, claims []Claim) ([]AcquireResult, error)

	// Transfer gives leases of this session to another session, or to this session again, each with
	// a new token (A5, A2). It takes effect only if exactly the named fence is current. From then
	// on in the store's order, that fence is dead. If the fence is not current, the result is
	// *FencedError. If the successor has no member record, the result is ErrNoTarget and the fence
	// stays valid. A repeated transfer with the same fence finds its own earlier success and
	// returns the same new fence (A3).
	Transfer(ctx context.Context, to []Transfer) ([]AcquireResult, error)

	// Release frees exactly the named leases, and keeps their tokens as the floor. For an older or
	// unknown fence, it is a successful no-op. Afterwards, another session can acquire the shards
	// immediately (R1). A nil error means that every named fence is dead. The store checks the
	// record, not the caller.
	//
	// Once a lock (IsLock) is free and has no head, its record is removed, immediately or later (R2),
	// unless Limits.RecordsStay. An observer still learns of the release from a view that shows
	// it, or from a Reset that does not list the lock.
	Release(ctx context.Context, fences []Fence) error

	// Commit writes under leases. Each Write is atomic, and independent of the others. A write
	// takes effect, in one atomic step, if and only if two conditions hold at its point in the
	// store's order. Its fence is the shard's latest granted lease, neither released nor
	// transferred nor preempted, and its number is the next (F1). For a dead fence, the error is
	// *FencedError, even if a precondition would have failed as well. For a failed precondition or
	// number, it is *ConflictError. In both cases, the write has no effect (F2).
	//
	// Entries are numbered from Head.Seq+1, carry the fence's token and never change. Numbers never
	// restart (L1, L3). Evicting the session alone does not fence a write: only a new grant does. A
	// write's fence may name any session, because the store checks the record, not the caller.
	//
	// In some stores, other writers can lock a shard's record, such as an application's transaction
	// that uses a SQL backend's FenceTx. If a call has several writes, a write whose record is
	// locked is not made, and its result matches ErrRetry. The other writes are not delayed. If a
	// call has one write, the write waits for the lock until ctx ends.
	Commit(ctx context.Context, writes []Write) ([]CommitResult, error)

	// Update replaces the mutable part of the session's own record; identity, node label and TTL
	// stay the same. It takes effect, in one atomic step, if and only if the record exists and its
	// Update is below st.Update. Late or repeated updates therefore never undo later ones. If
	// st.Update is the record's number, Update succeeds and changes nothing, so that an update with
	// an unknown outcome can be repeated. If it is lower, the error is ErrConflict. If the session
	// has no record, the error is permanently ErrSessionLost. Observers learn of an update as they
	// learn of a join (O1). An update does not change the version that heartbeats change. It does
	// not count as a heartbeat, and no heartbeat fails because of it (M4).
	Update(ctx context.Context, st MemberState) error

	// Evict removes exactly the named versions of other sessions' records. It leaves a record that
	// has changed since, and reports its version (M2).
	Evict(ctx context.Context, suspects []Suspect) ([]EvictResult, error)

	// Close removes the session's record in one write, which frees everything that it held. Closing
	// a session whose record is gone is not an error.
	Close(ctx context.Context) error
}

// NewOpener returns the Opener of a backend with the given name. It decodes the settings into an
// S, which it passes to open.
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

// Opener opens a backend that the configuration selects by name. Open calls decode with a pointer
// to the backend's own options struct to fill it. decode must refuse unknown fields.
type Opener struct {
	Name string
	// Settings is the zero value of that struct, with yaml tags. It tells a reader of the
	// configuration the keys, and which of them are secret. A key is secret if its type is a string
	// with a Format method. Settings is nil if not known.
	Settings any
	Open     func(ctx context.Context, decode func(any) error) (Backend, error)
}

package driver

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// These errors are the closed set of rule E1. If the error of a call or an item matches one of
// these errors, the call or item certainly was not applied and never will be. Any other error,
// including a context's, means that the outcome is unknown: the write may have happened, or may
// still happen. Backends wrap both the store's own error and the sentinel with %w, and do not map
// unknown errors to a sentinel.
var (
	// ErrLost means that a lease is over, and every error with this meaning matches it. ErrLost
	// itself is not in the closed set, because a backend returns ErrFenced or ErrSessionLost.
	ErrLost = errors.New("lease lost")
	// ErrFenced means the fence is not the shard's current grant. ErrFenced matches ErrLost. See
	// FencedError.
	ErrFenced = fmt.Errorf("fenced: %w: it is no longer the shard's current grant", ErrLost)
	// ErrSessionLost means the session has no record, and will never have one again. ErrSessionLost
	// matches ErrLost.
	ErrSessionLost = fmt.Errorf("session lost: its record was evicted, superseded or closed: %w", ErrLost)
	// ErrHeld means the store denied the claim. See HeldError.
	ErrHeld = errors.New("held: the shard's record is not as the claim saw it, or its holder lives")
	// ErrNoTarget means the target session of the transfer has no record. The fence stays valid.
	ErrNoTarget = errors.New("no target: the successor has no session record")
	// ErrConflict means a precondition does not hold or the write's number is wrong. See
	// ConflictError.
	ErrConflict = errors.New("conflict: a precondition does not hold")
	// ErrInvalid means this package does not allow a name, value or option.
	ErrInvalid = errors.New("invalid")
	// ErrTooLarge means a request exceeds a limit in Info, or the server's limit for a whole
	// request (A4).
	ErrTooLarge = errors.New("too large")
	// ErrUnsupported means the store does not support the call.
	ErrUnsupported = errors.New("unsupported by this store")
	// ErrStoreChanged means the store was replaced: it has a different identity, or its revision
	// went backwards (rule I1). No lease may be granted until an operator decides what to do.
	ErrStoreChanged = errors.New("store changed: it was wiped, restored or replaced; an operator must decide")
	// ErrClosed means the backend was closed, before the call began or while it waited.
	ErrClosed = errors.New("closed")
	// ErrRetry means the store certainly did not apply the call, and the same call may succeed
	// later. Reasons include a deadlock, a serialization failure, a lack of space, a lost race
	// between joins, and a context that was done before anything was sent.
	ErrRetry = errors.New("not applied, may be tried again")

	// ErrDamaged means a record in the store cannot be read. Calls that need the record fail until
	// the record is repaired. Reads return ErrDamaged too. See DamagedError.
	ErrDamaged = errors.New("damaged: a record of the store cannot be read")

	// ErrDenied means the store denies the call to this user, or its current settings forbid the
	// call. Reasons include a missing permission and a read-only server. Rule E5: whenever the
	// store reports such a denial, the error of a read or a write matches ErrDenied. If a write was
	// certainly not applied, its error matches ErrRetry as well, because ErrDenied alone is not in
	// the closed set.
	ErrDenied = errors.New("denied until a right or a setting of the store is changed")

	// ErrTrimmed means the requested entry was trimmed. ErrTrimmed is the only read error outside
	// the closed set. See TrimmedError.
	ErrTrimmed = errors.New("trimmed: the log no longer holds that entry")
)

var notApplied = [...]error{
	ErrFenced, ErrSessionLost, ErrHeld, ErrNoTarget, ErrConflict, ErrInvalid, ErrTooLarge,
	ErrUnsupported, ErrStoreChanged, ErrClosed, ErrRetry, ErrDamaged,
}

// NotApplied reports whether err is in the closed set of rule E1, which means that its call or item
// was certainly not applied. NotApplied returns false for nil.
func NotApplied(err error) bool {
	for _, s := range notApplied {
		if errors.Is(err, s) {
			return true
		}
	}
	return false
}

// Unknown reports whether err leaves the outcome unknown: the call failed, but may have been
// applied (rules E1 and S16).
func Unknown(err error) bool { return err != nil && !NotApplied(err) }

// Ended returns the error of a context that has ended, with its cause. Backends use Ended because
// client libraries do not always report why a call ended. If the cause matches ErrLost or a
// sentinel of the closed set, Ended keeps only the text of the cause. Such a cause explains why the
// caller gave up, but it is not the outcome of the call (rule E1).
func Ended(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	switch {
	case err == cause: //nolint:errorlint // a cause that wraps err says more than err
		return err
	case NotApplied(cause), errors.Is(cause, ErrLost):
		return fmt.Errorf("%w: %v", err, cause)
	}
	return fmt.Errorf("%w: %w", err, cause)
}

// Loss is the way in which a session ended, if the store still records it.
type Loss string

// A session can end in these ways. The zero value means that the way is unknown.
const (
	LossEvicted    Loss = "evicted"    // evicted by another member that saw no heartbeat for the session's TTL
	LossSuperseded Loss = "superseded" // superseded by a join under its node label
	LossClosed     Loss = "closed"     // closed by its member
)

// toolPrefix is the prefix of the node labels under which operators' tools join. See
// internal/operator.
const toolPrefix = "tool."

// SessionLostError is the error of a call on a session that has no record. The error matches
// ErrSessionLost and ErrLost. The call itself does not look up the reason for the loss. An
// Explainer can fill in By and Node afterwards.
type SessionLostError struct {
	Session SessionID
	Cause   Loss
	By      SessionID // the session that evicted or superseded Session, if known
	Node    string    // By's node label
}

func (e *SessionLostError) Error() string {
	switch e.Cause {
	case LossEvicted:
		if strings.HasPrefix(e.Node, toolPrefix) {
			return fmt.Sprintf("tenure: session %q was evicted by an operator, from %q: it may have been alive", e.Session, e.Node[len(toolPrefix):])
		}
		return fmt.Sprintf("tenure: session %q was evicted by session %q of node %q: it was silent for its TTL", e.Session, e.By, e.Node)
	case LossSuperseded:
		return fmt.Sprintf("tenure: session %q was superseded by session %q under node label %q: if both run, give each a label of its own",
			e.Session, e.By, e.Node)
	case LossClosed:
		return fmt.Sprintf("tenure: session %q was closed: join again", e.Session)
	}
	return fmt.Sprintf("tenure: session %q has no record any more: it was evicted, superseded or closed", e.Session)
}

// Is reports whether target is ErrSessionLost or ErrLost.
func (e *SessionLostError) Is(target error) bool {
	return target == ErrSessionLost || target == ErrLost
}

// Explainer is an optional interface of a Session that can report afterwards how it ended.
type Explainer interface {
	// Explain is called after the session was found to be lost, and needs at most one read. Fields
	// whose value the store lacks, or cannot report before ctx ends, stay empty. The answer is only
	// for information, and no decision depends on it. In the same step as the eviction, an evictor
	// writes its name to one of a few places. Later evictors may overwrite it.
	Explain(ctx context.Context) *SessionLostError
}

// LabelLister is an optional interface of a Backend that can list the node labels with a record, in
// no particular order. Operators and tests use this interface.
type LabelLister interface {
	Labels(ctx context.Context) ([]string, error)
}

// Historian is an optional interface of a Backend that remembers the last leases of a shard. The
// tenure history command shows these leases.
type Historian interface {
	// History returns at most the last four leases of a shard, oldest first. For a lock, History
	// returns no leases (R3). The write that changes the owner also stores the leases, in at most
	// 200 bytes of the shard's record. No View contains the leases, and no decision depends on
	// them. If a stored lease is implausible, the error matches ErrDamaged, and History returns
	// only the newer leases.
	History(ctx context.Context, shard ShardID) ([]Grant, error)
}

// MissingError reports a database, tables or a namespace that a backend did not find when it was
// opened, and was not allowed to create. The error matches Err.
type MissingError struct {
	What string // the missing thing, such as `namespace "app" has no identity record`
	Make string // how a program creates the thing, such as "open it once with Create"; it follows "run tenure init, or"
	Err  error  // the sentinel that the error matches, if any
}

func (e *MissingError) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("tenure: %s: run tenure init, or %s", e.What, e.Make)
	}
	return fmt.Sprintf("tenure: %s: run tenure init, or %s: %v", e.What, e.Make, e.Err)
}

func (e *MissingError) Unwrap() error { return e.Err }

// HeldError is the error of a denied claim, with the shard's current record (rule A4). A HeldError
// may also mean that Claim.Seen was stale, although no session holds the shard. HeldError matches
// ErrHeld.
type HeldError struct {
	Shard ShardID
	Owner Owner
}

func (e *HeldError) Error() string {
	if e.Owner.Session == "" {
		return fmt.Sprintf("tenure: shard %q is free with token %d, which is not what the claim saw", e.Shard, e.Owner.Token)
	}
	return fmt.Sprintf("tenure: shard %q is held by session %q with token %d", e.Shard, e.Owner.Session, e.Owner.Token)
}

// Is reports whether target is ErrHeld.
func (e *HeldError) Is(target error) bool { return target == ErrHeld }

// FencedError is the error of a write or transfer that was refused because of its fence. Current is
// the shard's record, or the zero Owner if the store does not return the record. FencedError
// matches ErrFenced and ErrLost.
type FencedError struct {
	Fence   Fence
	Current Owner
}

func (e *FencedError) Error() string {
	return fmt.Sprintf("tenure: shard %q: token %d of session %q is fenced; the record names session %q with token %d",
		e.Fence.Shard, e.Fence.Token, e.Fence.Session, e.Current.Session, e.Current.Token)
}

// Is reports whether target is ErrFenced or ErrLost.
func (e *FencedError) Is(target error) bool { return target == ErrFenced || target == ErrLost }

// NumberConflict is the value of ConflictError.Op if the write's number is not the next number.
const NumberConflict = -1

// ConflictError is the error of a write that was refused although its fence is current. Op is the
// index of the first operation whose precondition failed, or is NumberConflict. Head is the shard's
// current head. ConflictError matches ErrConflict.
type ConflictError struct {
	Shard ShardID
	Op    int
	Head  Head
}

func (e *ConflictError) Error() string {
	if e.Op == NumberConflict {
		return fmt.Sprintf("tenure: shard %q: the write's number is not the next; the last commit is number %d", e.Shard, e.Head.Number)
	}
	return fmt.Sprintf("tenure: shard %q: the precondition of operation %d does not hold", e.Shard, e.Op)
}

// Is reports whether target is ErrConflict.
func (e *ConflictError) Is(target error) bool { return target == ErrConflict }

// TrimmedError reports a read that starts before the log's oldest entry (rule L3). Oldest is the
// number of the first readable entry, or Head.Seq+1 if no entries are left. TrimmedError matches
// ErrTrimmed.
type TrimmedError struct {
	Shard  ShardID
	Oldest Seq
}

func (e *TrimmedError) Error() string {
	return fmt.Sprintf("tenure: shard %q: the log begins at entry %d; restore a snapshot and read on from there", e.Shard, e.Oldest)
}

// Is reports whether target is ErrTrimmed.
func (e *TrimmedError) Is(target error) bool { return target == ErrTrimmed }

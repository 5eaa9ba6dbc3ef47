package driver

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// The closed set of errors (rule E1). An error that matches one of these means that the call, or
// the item that has the error, was certainly not applied, now or later. Any other error, including
// a context's, means that the outcome is unknown: the write may have happened, or may still happen.
// Backends wrap the store's own error and the sentinel with %w, and map unknown errors to no
// sentinel.
var (
	// Every error that means that a lease is over matches ErrLost. It is not itself in the closed
	// set: a backend returns ErrFenced or ErrSessionLost.
	ErrLost = errors.New("lease lost")
	// ErrFenced means the fence is not the shard's current grant. See FencedError. It matches
	// ErrLost.
	ErrFenced = fmt.Errorf("fenced: %w: it is no longer the shard's current grant", ErrLost)
	// ErrSessionLost means the session has no record, and never will again. It matches ErrLost.
	ErrSessionLost = fmt.Errorf("session lost: its record was evicted, superseded or closed: %w", ErrLost)
	// ErrHeld means the claim was denied. See HeldError.
	ErrHeld = errors.New("held: the shard's record is not as the claim saw it, or its holder lives")
	// ErrNoTarget means the session to transfer to has no record. The fence stays valid.
	ErrNoTarget = errors.New("no target: the successor has no session record")
	// ErrConflict means a precondition or the write's number failed. See ConflictError.
	ErrConflict = errors.New("conflict: a precondition does not hold")
	// ErrInvalid means a name, value or option is outside what this package allows.
	ErrInvalid = errors.New("invalid")
	// ErrTooLarge means a request exceeds a limit of Info, or a limit of the server for a whole
	// request (A4).
	ErrTooLarge = errors.New("too large")
	// ErrUnsupported means the store does not support the call.
	ErrUnsupported = errors.New("unsupported by this store")
	// ErrStoreChanged means the store was replaced: it has another identity, or its revision went
	// back (rule I1). No lease may be granted until an operator decides.
	ErrStoreChanged = errors.New("store changed: it was wiped, restored or replaced; an operator must decide")
	// ErrClosed means the backend was closed, before the call began or while it waited.
	ErrClosed = errors.New("closed")
	// ErrRetry means the store certainly did not apply the call, and the same call may succeed
	// later. Reasons are a deadlock, a serialization failure, no space, a lost race between
	// joins, or a context that was done before anything was sent.
	ErrRetry = errors.New("not applied, may be tried again")

	// ErrDamaged means a record in the store cannot be read. Calls that need it fail until it is
	// repaired. Reads return it as well. See DamagedError.
	ErrDamaged = errors.New("damaged: a record of the store cannot be read")

	// ErrDenied means the store denies the call to this user, or its present settings forbid the
	// call. Reasons are a missing right or a read-only server. Rule E5: whenever the store reports
	// this, the error of a read or a write matches ErrDenied. If a write was certainly not applied,
	// its error matches ErrRetry as well, because ErrDenied alone is not in the set.
	ErrDenied = errors.New("denied until a right or a setting of the store is changed")

	// ErrTrimmed is the only error of reads outside the set above: the requested entry was
	// trimmed. See TrimmedError.
	ErrTrimmed = errors.New("trimmed: the log no longer holds that entry")
)

var notApplied = [...]error{
	ErrFenced, ErrSessionLost, ErrHeld, ErrNoTarget, ErrConflict, ErrInvalid, ErrTooLarge,
	ErrUnsupported, ErrStoreChanged, ErrClosed, ErrRetry, ErrDamaged,
}

// NotApplied reports whether err is of the closed set of rule E1, so that its call or item was
// certainly not applied. NotApplied returns false for nil.
func NotApplied(err error) bool {
	for _, s := range notApplied {
		if errors.Is(err, s) {
			return true
		}
	}
	return false
}

// Unknown reports whether err leaves the outcome unknown: the call neither succeeded nor certainly
// failed to apply (rules E1 and S16).
func Unknown(err error) bool { return err != nil && !NotApplied(err) }

// Ended returns, for backends, the error of a context that is done, with its cause. Client
// libraries do not always report why a call ended. If the cause matches ErrLost or a sentinel of
// the closed set, Ended keeps only its text. Such a cause is the reason why the caller gave up, not
// the outcome of the call (rule E1).
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

// Loss says how a session ended, if the store still knows.
type Loss string

// The ways in which sessions end. The zero value means unknown.
const (
	LossEvicted    Loss = "evicted"    // by another member that saw no heartbeat for its TTL
	LossSuperseded Loss = "superseded" // by a join under its node label
	LossClosed     Loss = "closed"     // by its member
)

// toolPrefix begins the node labels under which operators' tools join: see internal/operator.
const toolPrefix = "tool."

// SessionLostError is the error of a session that has no record. It matches ErrSessionLost and
// ErrLost. The call that finds a session lost does not read the reason. Explainer fills in By and
// Node afterwards.
type SessionLostError struct {
	Session SessionID
	Cause   Loss
	By      SessionID // the session that evicted or superseded it, if known
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

// Is matches ErrSessionLost and ErrLost.
func (e *SessionLostError) Is(target error) bool {
	return target == ErrSessionLost || target == ErrLost
}

// Explainer is an optional interface of a Session that can report afterwards how it ended.
type Explainer interface {
	// Explain is called after the session was found lost, and costs at most one read. Fields that
	// the store does not know, or cannot report before ctx ends, stay empty. The answer is for
	// people and decides nothing. Evictors leave their names in a few places, in the step that
	// evicts, and later evictors overwrite these names.
	Explain(ctx context.Context) *SessionLostError
}

// LabelLister is an optional interface of a Backend that lists the node labels that have a record,
// in no particular order. It is for operators and tests.
type LabelLister interface {
	Labels(ctx context.Context) ([]string, error)
}

// Historian is an optional interface of a Backend that remembers the last leases of a shard, for
// people. The command tenure history shows them.
type Historian interface {
	// History returns at most the last four leases of a shard, oldest first. For a lock, it returns
	// none (R3). Each change of owner writes them with the shard's record, in at most 200 bytes,
	// without another request. No View contains them, and they decide nothing. If a stored lease is
	// implausible, the error matches ErrDamaged, and History returns only the newer leases.
	History(ctx context.Context, shard ShardID) ([]Grant, error)
}

// MissingError reports a database, tables or a namespace that a backend did not find when it was
// opened, and was not allowed to create. It matches Err.
type MissingError struct {
	What string // the missing thing, such as `namespace "app" has no identity record`
	Make string // how a program creates it, such as "open it once with Create"; it follows "run tenure init, or"
	Err  error  // the sentinel that it matches, if any
}

func (e *MissingError) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("tenure: %s: run tenure init, or %s", e.What, e.Make)
	}
	return fmt.Sprintf("tenure: %s: run tenure init, or %s: %v", e.What, e.Make, e.Err)
}

func (e *MissingError) Unwrap() error { return e.Err }

// HeldError is the error of a denied claim, with the shard's current record (rule A4). HeldError is
// also returned if only Claim.Seen was stale and no session holds the shard. It matches ErrHeld.
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

// Is matches ErrHeld.
func (e *HeldError) Is(target error) bool { return target == ErrHeld }

// FencedError is the error of a refused write or transfer, with the record that refused it.
// Current is the zero Owner if the store does not return it. It matches ErrFenced and ErrLost.
type FencedError struct {
	Fence   Fence
	Current Owner
}

func (e *FencedError) Error() string {
	return fmt.Sprintf("tenure: shard %q: token %d of session %q is fenced; the record names session %q with token %d",
		e.Fence.Shard, e.Fence.Token, e.Fence.Session, e.Current.Session, e.Current.Token)
}

// Is matches ErrFenced and ErrLost.
func (e *FencedError) Is(target error) bool { return target == ErrFenced || target == ErrLost }

// NumberConflict is the value of ConflictError.Op if the write's number was refused because it is
// not the next one.
const NumberConflict = -1

// ConflictError is the error of a write that was refused although its fence is current. Op is the
// index of the first operation whose precondition failed, or NumberConflict. Head is the shard's
// current head. It matches ErrConflict.
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

// Is matches ErrConflict.
func (e *ConflictError) Is(target error) bool { return target == ErrConflict }

// TrimmedError is the error of a read of the log below its oldest entry (rule L3). Oldest is the
// first entry that can be read, or Head.Seq+1 if none is left. It matches ErrTrimmed.
type TrimmedError struct {
	Shard  ShardID
	Oldest Seq
}

func (e *TrimmedError) Error() string {
	return fmt.Sprintf("tenure: shard %q: the log begins at entry %d; restore a snapshot and read on from there", e.Shard, e.Oldest)
}

// Is matches ErrTrimmed.
func (e *TrimmedError) Is(target error) bool { return target == ErrTrimmed }

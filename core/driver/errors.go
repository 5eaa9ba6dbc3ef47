package driver

import (
	"context"
	"errors"
	"fmt"
)

// The closed set of errors (rule E1). An error that matches one of these means
// that the call, or the item that carries it, was certainly not applied, now or
// later. Everything else, a context's error included, is unknown: the write may
// have happened, or may happen yet. Backends wrap the store's own error with %w
// beside the sentinel, and map what they do not know to no sentinel at all.
var (
	// ErrLost is matched by every error that says that a lease is over. It is not of the closed
	// set by itself: a backend answers with ErrFenced or ErrSessionLost.
	ErrLost = errors.New("lease lost")
	// ErrFenced: the fence is not the shard's current grant. See FencedError. It matches ErrLost.
	ErrFenced = fmt.Errorf("fenced: %w: it is no longer the shard's current grant", ErrLost)
	// ErrSessionLost: the session has no record any more, and never will again. It matches ErrLost.
	ErrSessionLost = fmt.Errorf("session lost: its record was evicted, superseded or closed: %w", ErrLost)
	// ErrHeld: the claim was denied. See HeldError.
	ErrHeld = errors.New("held: the shard's record is not as the claim saw it, or its holder lives")
	// ErrNoTarget: the session to transfer to has no record; the fence stays valid.
	ErrNoTarget = errors.New("no target: the successor has no session record")
	// ErrConflict: a precondition or the write's number failed. See ConflictError.
	ErrConflict = errors.New("conflict: a precondition does not hold")
	// ErrInvalid: a name, value or option outside what this package allows.
	ErrInvalid = errors.New("invalid")
	// ErrTooLarge: over a limit of Info, or of the server, for a whole request (A4).
	ErrTooLarge = errors.New("too large")
	// ErrUnsupported: the store cannot do this.
	ErrUnsupported = errors.New("unsupported by this store")
	// ErrStoreChanged: the store is not the one it was: another identity, or a
	// revision that went back (rule I1). Nothing may be granted until an operator
	// decided.
	ErrStoreChanged = errors.New("store changed: it was wiped, restored or replaced; an operator must decide")
	// ErrClosed: the backend was closed, before the call began or while it waited.
	ErrClosed = errors.New("closed")
	// ErrRetry: the store certainly did not apply it, and the same call may
	// succeed later: a deadlock, a serialization failure, no space, a lost race
	// between joins, or a context that was done before anything was sent.
	ErrRetry = errors.New("not applied, may be tried again")

	// ErrDamaged: a record of the store cannot be read, and what needs it cannot go on
	// until it is mended. Reads answer it as well. See DamagedError.
	ErrDamaged = errors.New("damaged: a record of the store cannot be read")

	// ErrDenied: the store does not do this for this user, or with its present settings: a right
	// that is missing, a server that is read-only. Rule E5: whenever the store says so, the error
	// of a read or a write matches ErrDenied. The error of a write that was certainly not
	// applied matches ErrRetry as well, since ErrDenied alone is not of the set.
	ErrDenied = errors.New("denied until a right or a setting of the store is changed")

	// ErrTrimmed is the one error of reads that is not of the set above: the
	// entry asked for was trimmed. See TrimmedError.
	ErrTrimmed = errors.New("trimmed: the log no longer holds that entry")
)

var notApplied = [...]error{
	ErrFenced, ErrSessionLost, ErrHeld, ErrNoTarget, ErrConflict, ErrInvalid, ErrTooLarge,
	ErrUnsupported, ErrStoreChanged, ErrClosed, ErrRetry, ErrDamaged,
}

// NotApplied reports whether err is of the closed set of rule E1, so that the
// call or item it belongs to was certainly not applied. It is false for nil.
func NotApplied(err error) bool {
	for _, s := range notApplied {
		if errors.Is(err, s) {
			return true
		}
	}
	return false
}

// Unknown reports whether the outcome behind err is unknown: neither success nor
// certainly not applied (rules E1 and S16).
func Unknown(err error) bool { return err != nil && !NotApplied(err) }

// Ended is the error of a context that is done, with its cause, for backends: client
// libraries do not always say why a call ended. A cause that matches ErrLost or one of the
// closed set is told in words only: it is why the caller gave up, and says nothing of what
// became of the call (rule E1).
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

// Loss is how a session ended, as far as the store still knows.
type Loss string

// How sessions end. The zero value is not known.
const (
	LossEvicted    Loss = "evicted"    // by another member, to which it was silent for its TTL
	LossSuperseded Loss = "superseded" // by a join under its node label
	LossClosed     Loss = "closed"     // by itself
)

// SessionLostError is a session that has no record any more. It matches
// ErrSessionLost and ErrLost. The call that finds a session lost does not ask why: By and Node
// are what Explainer tells afterwards.
type SessionLostError struct {
	Session SessionID
	Cause   Loss
	By      SessionID // the session that evicted or superseded it, if known
	Node    string    // By's node label
}

func (e *SessionLostError) Error() string {
	switch e.Cause {
	case LossEvicted:
		return fmt.Sprintf("tenure: session %q was evicted by session %q of node %q: it was silent for its TTL", e.Session, e.By, e.Node)
	case LossSuperseded:
		return fmt.Sprintf("tenure: session %q was superseded by session %q under node label %q: if both run, give each a label of its own",
			e.Session, e.By, e.Node)
	case LossClosed:
		return fmt.Sprintf("tenure: session %q was closed: join again", e.Session)
	}
	return fmt.Sprintf("tenure: session %q has no record any more: it was evicted, superseded or closed", e.Session)
}

// Is makes a SessionLostError match ErrSessionLost and ErrLost.
func (e *SessionLostError) Is(target error) bool {
	return target == ErrSessionLost || target == ErrLost
}

// Explainer is a Session that can say afterwards how it ended. It is optional.
type Explainer interface {
	// Explain is called after the session was found lost, and costs one read at
	// most. What the store does not know, or cannot tell before ctx ends, stays
	// empty. The answer is for people and decides nothing: evictors leave their
	// names in a few places, in the step that evicts, and later ones overwrite them.
	Explain(ctx context.Context) *SessionLostError
}

// LabelLister is a Backend that lists the node labels that have a record, in no
// order. It is optional, for operators and tests.
type LabelLister interface {
	Labels(ctx context.Context) ([]string, error)
}

// MissingError is what an opening did not find and was not to make: a database, its tables or
// the namespace. It matches Err.
type MissingError struct {
	What string // is missing, such as `namespace "app" has no identity record`
	Make string // how a program makes it, such as "open it once with Create"
	Err  error  // the sentinel that it matches, if any
}

func (e *MissingError) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("tenure: %s: %s", e.What, e.Make)
	}
	return fmt.Sprintf("tenure: %s: %s: %v", e.What, e.Make, e.Err)
}

func (e *MissingError) Unwrap() error { return e.Err }

// HeldError is a denied claim, with the shard's record as it is (rule A4), also
// when only Claim.Seen was stale and nobody holds the shard. It matches ErrHeld.
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

// Is makes a HeldError match ErrHeld.
func (e *HeldError) Is(target error) bool { return target == ErrHeld }

// FencedError is a refused write or transfer, with the record that refused it. Current is the zero Owner where the store does not tell. It
// matches ErrFenced and ErrLost.
type FencedError struct {
	Fence   Fence
	Current Owner
}

func (e *FencedError) Error() string {
	return fmt.Sprintf("tenure: shard %q: token %d of session %q is fenced; the record names session %q with token %d",
		e.Fence.Shard, e.Fence.Token, e.Fence.Session, e.Current.Session, e.Current.Token)
}

// Is makes a FencedError match ErrFenced and ErrLost.
func (e *FencedError) Is(target error) bool { return target == ErrFenced || target == ErrLost }

// NumberConflict is ConflictError.Op when not an operation but the write's
// number was refused: it is not the next one.
const NumberConflict = -1

// ConflictError is a write that was refused although its fence is current: Op is
// the index of the first operation whose precondition failed, or NumberConflict.
// Head is the shard's head as it is. It matches ErrConflict.
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

// Is makes a ConflictError match ErrConflict.
func (e *ConflictError) Is(target error) bool { return target == ErrConflict }

// TrimmedError answers a read of the log below its oldest entry (rule L3).
// Oldest is the first entry that can be read; Head.Seq+1 when none is left. It
// matches ErrTrimmed.
type TrimmedError struct {
	Shard  ShardID
	Oldest Seq
}

func (e *TrimmedError) Error() string {
	return fmt.Sprintf("tenure: shard %q: the log begins at entry %d; restore a snapshot and read on from there", e.Shard, e.Oldest)
}

// Is makes a TrimmedError match ErrTrimmed.
func (e *TrimmedError) Is(target error) bool { return target == ErrTrimmed }

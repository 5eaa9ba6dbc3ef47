package core

import (
	"errors"
	"fmt"
	"strings"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/fsm"
)

// The contract's errors that applications meet (rule E1). An error of these
// means "certainly not applied".
var (
	// ErrLost: this process does not lead any more, as its lease is over. Every error that says
	// so matches it: a *RevokedError, *FencedError, *SessionLostError, and *RefusedError of
	// package fence. What was to be written was not, and must not be under this lease.
	ErrLost = driver.ErrLost
	// ErrFenced: the store refused a write since its lease is not the shard's current one. See
	// FencedError. A former leader mostly finds out by its clock before it writes: the
	// question is whether an error matches ErrLost.
	ErrFenced = driver.ErrFenced
	// ErrSessionLost: the session has no record in the store any more: it was evicted or superseded.
	ErrSessionLost = driver.ErrSessionLost
	// ErrNoTarget: the successor of a hand-over does not live.
	ErrNoTarget = driver.ErrNoTarget
	// ErrConflict: a precondition of a commit does not hold. See ConflictError.
	ErrConflict = driver.ErrConflict
	// ErrInvalid: an argument is outside its grammar or bounds. The error says which, and what to change.
	ErrInvalid = driver.ErrInvalid
	// ErrTooLarge: a write is above the backend's Limits, or more than the server takes. Nothing was written.
	ErrTooLarge = driver.ErrTooLarge
	// ErrUnsupported: the store, or its configuration, cannot do this.
	ErrUnsupported = driver.ErrUnsupported
	// ErrStoreChanged: the store was wiped, restored or replaced. Nothing is granted until an operator decided.
	ErrStoreChanged = driver.ErrStoreChanged
	// ErrClosed: the backend was closed, before the call began or while it waited.
	ErrClosed = driver.ErrClosed
	// ErrRetry: the store did not apply it, and the same call may succeed later.
	ErrRetry = driver.ErrRetry
	// ErrDenied: the store does not do this for this user, or with its present settings.
	ErrDenied = driver.ErrDenied
	// ErrDamaged: a record in the store cannot be read. See DamagedError.
	ErrDamaged = driver.ErrDamaged
	// ErrTrimmed: the log's entries up to there were trimmed. See TrimmedError.
	ErrTrimmed = driver.ErrTrimmed
)

// Why a handler's context ended: context.Cause of it matches one of these, or ErrLost.
var (
	// ErrWithdrawn: Withdraw was called. The lease is still held.
	ErrWithdrawn = errors.New("tenure: withdrawn: finish and return, the lease is given back then")
	// ErrHandOver: HandOver was called. The lease is still held.
	ErrHandOver = errors.New("tenure: hand-over: finish and return, the successor takes over then")
	// ErrShutdown: the context of Run ended. The lease is still held.
	ErrShutdown = errors.New("tenure: shutdown: finish and return, the lease is given back then")
	// ErrIneligible: this member is not eligible (Options.Eligible, or since the store denies its
	// commits), and another one is. The error has the reason. The lease is still held.
	ErrIneligible = errors.New("tenure: not eligible: finish and return, an eligible member takes over then")
	// ErrFailback: a member with a higher priority has lived for Options.Failback. The
	// lease is still held.
	ErrFailback = errors.New("tenure: failback: finish and return, a member with a higher priority takes over then")
)

// What a *RevokedError matches beside ErrLost, when no error of the store says it.
var (
	// ErrLapsed: no heartbeat succeeded in time, so others may own the shard.
	ErrLapsed = errors.New("trust lapsed: no heartbeat succeeded in time")
	// ErrDrainBudget: the handler was asked to stop and did not in time.
	ErrDrainBudget = errors.New("drain budget spent")
	// ErrStalled: the handler called Lease.Progress too rarely.
	ErrStalled = errors.New("handler stalled")
	// ErrReleased: the handler returned, so the lease was given back.
	ErrReleased = errors.New("tenure: lease given back: its handler returned")
)

var (
	// ErrUnknown: the outcome of a commit is not known: it may have been applied,
	// or may be yet. The log, read through a later lease, tells.
	ErrUnknown = errors.New("outcome unknown")
	// ErrContended: Contend was called for a shard that is contended already.
	ErrContended = errors.New("already contended")
	// ErrStopped: Run has ended, or is ending.
	ErrStopped = errors.New("elector stopped")
	// ErrStoreLost: a failover or restore lost acknowledged commits. See LostError.
	ErrStoreLost = errors.New("the store lost acknowledged commits")
	// ErrStuck: a handler did not return. See StuckError.
	ErrStuck = errors.New("handler stuck")
)

// NotApplied reports whether err, of a Commit or of a call to a backend, says that
// nothing was applied, now or later (rule E1). It is false for nil.
func NotApplied(err error) bool {
	if errors.Is(err, ErrUnknown) {
		return false
	}
	return driver.NotApplied(err) || errors.Is(err, ErrLost)
}

// RevokedError says which lease ended and why. It matches ErrLost, and what caused it:
// ErrLapsed, ErrFenced, ErrSessionLost, ErrStoreChanged, ErrDrainBudget, ErrStalled,
// ErrStopped or ErrReleased.
type RevokedError struct {
	Fence Fence
	Cause string // in a few words, for logs and metrics
	cause fsm.Cause
}

func revoked(f Fence, c fsm.Cause) *RevokedError {
	return &RevokedError{Fence: f, Cause: c.String(), cause: c}
}

func (e *RevokedError) Error() string {
	return fmt.Sprintf("tenure: shard %q: the lease with token %d ended: %v", e.Fence.Shard, e.Fence.Token, e.Cause)
}

// Is makes the error match as its type's comment says.
func (e *RevokedError) Is(target error) bool {
	return target == ErrLost || target == e.sentinel()
}

func (e *RevokedError) sentinel() error {
	switch e.cause {
	case fsm.CauseLapsed:
		return ErrLapsed
	case fsm.CauseFenced, fsm.CausePreempted:
		return ErrFenced
	case fsm.CauseSessionLost:
		return ErrSessionLost
	case fsm.CauseStoreChanged:
		return ErrStoreChanged
	case fsm.CauseDrainBudget:
		return ErrDrainBudget
	case fsm.CauseStalled:
		return ErrStalled
	case fsm.CauseLeft:
		return ErrStopped
	default:
		return ErrReleased
	}
}

// StuckError names the shards whose handler did not return within the drain
// budget. Their leases are revoked here and are not released, because their work
// may still go on. It matches ErrStuck.
type StuckError struct {
	Shards []string
}

func (e *StuckError) Error() string {
	const most = 5
	names := e.Shards
	more := ""
	if len(names) > most {
		more = fmt.Sprintf(" and %d more", len(names)-most)
		names = names[:most]
	}
	return fmt.Sprintf("tenure: the handler of %s%s did not return within the drain budget: make it return when its context ends; its lease is left to be evicted",
		strings.Join(names, ", "), more)
}

// Is makes a StuckError match ErrStuck.
func (e *StuckError) Is(target error) bool { return target == ErrStuck }

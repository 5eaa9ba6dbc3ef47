package core

import (
	"errors"
	"fmt"
	"strings"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/errtext"
	"github.com/tenure-go/tenure/internal/fsm"
)

// These are the errors from package driver that applications may get (rule E1). Each of these
// errors, except ErrDenied, means that the call was certainly not applied.
var (
	// ErrLost means this process no longer leads the shard, because its lease has ended. The errors
	// *RevokedError, *FencedError, *SessionLostError and package fence's *RefusedError match
	// ErrLost. The write was not applied, and must not be repeated under this lease.
	ErrLost = driver.ErrLost
	// ErrFenced means the store refused a write because the write's lease is not the shard's
	// current lease. See FencedError. Test for ErrLost instead, because a former leader usually
	// learns of the loss from its clock, before it writes.
	ErrFenced = driver.ErrFenced
	// ErrSessionLost means the session was evicted or superseded, and has no record in the store.
	ErrSessionLost = driver.ErrSessionLost
	// ErrNoTarget means the successor of a hand-over is not alive.
	ErrNoTarget = driver.ErrNoTarget
	// ErrConflict means a precondition of a commit does not hold. See ConflictError.
	ErrConflict = driver.ErrConflict
	// ErrInvalid means an argument is outside its grammar or its limits. The error identifies the
	// argument and explains what to change.
	ErrInvalid = driver.ErrInvalid
	// ErrTooLarge means a write exceeds the backend's Limits or what the server accepts. Nothing
	// was written.
	ErrTooLarge = driver.ErrTooLarge
	// ErrUnsupported means the store, or its configuration, does not support the call.
	ErrUnsupported = driver.ErrUnsupported
	// ErrStoreChanged means the store was wiped, restored or replaced. No lease is granted until an
	// operator decides what to do.
	ErrStoreChanged = driver.ErrStoreChanged
	// ErrClosed means the backend was closed, before the call began or while it waited.
	ErrClosed = driver.ErrClosed
	// ErrRetry means the store did not apply the call, and the same call may succeed later.
	ErrRetry = driver.ErrRetry
	// ErrDenied means the store denies the call to this user, or its current settings forbid the
	// call. ErrDenied alone does not show whether a write was applied. See NotApplied.
	ErrDenied = driver.ErrDenied
	// ErrDamaged means a record in the store cannot be read. See DamagedError.
	ErrDamaged = driver.ErrDamaged
	// ErrTrimmed means the requested entries of the log were trimmed. See TrimmedError.
	ErrTrimmed = driver.ErrTrimmed
)

// A handler's context can end for one of these reasons while its lease is still held. The function
// context.Cause returns an error that matches one of these errors, or ErrLost.
var (
	// ErrWithdrawn means Withdraw was called.
	ErrWithdrawn = errors.New("tenure: withdrawn: finish and return, the lease is given back then")
	// ErrHandOver means HandOver was called.
	ErrHandOver = errors.New("tenure: hand-over: finish and return, the successor takes over then")
	// ErrShutdown means Run's context ended.
	ErrShutdown = errors.New("tenure: shutdown: finish and return, the lease is given back then")
	// ErrIneligible means this member is not eligible, but another member is. The error includes
	// the reason, which comes from Options.Eligible or from a store that denies this member's
	// commits.
	ErrIneligible = errors.New("tenure: not eligible: finish and return, an eligible member takes over then")
	// ErrFailback means a member with a higher priority has been eligible for Options.Failback.
	ErrFailback = errors.New("tenure: failback: finish and return, a member with a higher priority takes over then")
)

// A *RevokedError matches ErrLost and, unless the reason is an error from the store, one of these
// errors.
var (
	// ErrLapsed means trust ended before a heartbeat succeeded, so other members may own the shard.
	ErrLapsed = errors.New("trust lapsed: no heartbeat succeeded in time")
	// ErrDrainBudget means the handler was asked to stop, but exceeded the drain budget.
	ErrDrainBudget = errors.New("drain budget spent")
	// ErrStalled means the handler did not call Lease.Progress often enough.
	ErrStalled = errors.New("handler stalled")
	// ErrReleased means the lease was given up because its handler returned.
	ErrReleased = errors.New("tenure: lease given back: its handler returned")
)

var (
	// ErrUnknown means the outcome of a commit is unknown: the commit may have been applied, or may
	// be applied later. To learn the outcome, read the shard's log through a later lease.
	ErrUnknown = errors.New("outcome unknown")
	// ErrContended means this member already contends for a shard that was passed to Contend.
	ErrContended error = errtext.NotApplied("already contended")
	// ErrStopped means Run has ended, or is ending.
	ErrStopped = errors.New("elector stopped")
	// ErrStoreLost means a failover or restore lost acknowledged commits. See LostError.
	ErrStoreLost = errors.New("the store lost acknowledged commits")
	// ErrStuck means a handler did not return. See StuckError.
	ErrStuck = errors.New("handler stuck")
)

// NotApplied reports whether the error of a Commit or a backend call means that nothing was or will
// be applied (rule E1). NotApplied returns false for nil. Error types of other packages can report
// this through a NotApplied method.
func NotApplied(err error) bool {
	if errors.Is(err, ErrUnknown) {
		return false
	}
	says, ok := errors.AsType[interface {
		error
		NotApplied() bool
	}](err)
	return driver.NotApplied(err) || errors.Is(err, ErrLost) || ok && says.NotApplied()
}

// RevokedError reports which lease ended, and why. RevokedError matches ErrLost and the reason,
// which is one of ErrLapsed, ErrFenced, ErrSessionLost, ErrStoreChanged, ErrDrainBudget,
// ErrStalled, ErrStopped or ErrReleased.
type RevokedError struct {
	Fence Fence
	Cause string // a short reason for logs and metrics
	cause fsm.Cause
}

func revoked(f Fence, c fsm.Cause) *RevokedError {
	return &RevokedError{Fence: f, Cause: c.String(), cause: c}
}

func (e *RevokedError) Error() string {
	return fmt.Sprintf("tenure: shard %q: the lease with token %d ended: %v", e.Fence.Shard, e.Fence.Token, e.Cause)
}

// Is reports whether target is ErrLost or the error's cause.
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

// StuckError lists the shards whose handlers did not return within the drain budget. The leases of
// these shards are revoked but not released, because the handlers' work may continue. StuckError
// matches ErrStuck.
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

// Is reports whether target is ErrStuck.
func (e *StuckError) Is(target error) bool { return target == ErrStuck }

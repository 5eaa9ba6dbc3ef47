package core

import (
	"errors"
	"fmt"
	"strings"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/errtext"
	"github.com/tenure-go/tenure/internal/fsm"
)

// The driver contract's errors that applications encounter (rule E1). Each except ErrDenied means
// that the call was certainly not applied.
var (
	// ErrLost means this process no longer leads, because its lease is over. *RevokedError,
	// *FencedError, *SessionLostError and package fence's *RefusedError match it. The write was not
	// applied, and must not be repeated under this lease.
	ErrLost = driver.ErrLost
	// ErrFenced means the store refused a write because its lease is not the shard's current one.
	// See FencedError. A former leader's clock usually shows the loss before it writes, so test for
	// ErrLost instead.
	ErrFenced = driver.ErrFenced
	// ErrSessionLost means the session no longer has a record in the store: it was evicted or
	// superseded.
	ErrSessionLost = driver.ErrSessionLost
	// ErrNoTarget means the successor of a hand-over is not alive.
	ErrNoTarget = driver.ErrNoTarget
	// ErrConflict means a precondition of a commit does not hold. See ConflictError.
	ErrConflict = driver.ErrConflict
	// ErrInvalid means an argument is outside its grammar or limits. The error names the argument
	// and says what to change.
	ErrInvalid = driver.ErrInvalid
	// ErrTooLarge means a write exceeds the backend's Limits or what the server accepts. Nothing
	// was written.
	ErrTooLarge = driver.ErrTooLarge
	// ErrUnsupported means the store, or its configuration, does not support the call.
	ErrUnsupported = driver.ErrUnsupported
	// ErrStoreChanged means the store was wiped, restored or replaced. Nothing is granted until
	// an operator decides.
	ErrStoreChanged = driver.ErrStoreChanged
	// ErrClosed means the backend was closed, before the call began or while it waited.
	ErrClosed = driver.ErrClosed
	// ErrRetry means the store did not apply the call, and the same call may succeed later.
	ErrRetry = driver.ErrRetry
	// ErrDenied means the store denies the call to this user, or its present settings forbid the
	// call. It does not say whether a write was applied: see NotApplied.
	ErrDenied = driver.ErrDenied
	// ErrDamaged means a record in the store cannot be read. See DamagedError.
	ErrDamaged = driver.ErrDamaged
	// ErrTrimmed means the requested entries of the log were trimmed. See TrimmedError.
	ErrTrimmed = driver.ErrTrimmed
)

// The reasons why a handler's context ends while its lease is still held. context.Cause returns an
// error that matches one of them, or ErrLost.
var (
	// ErrWithdrawn means Withdraw was called.
	ErrWithdrawn = errors.New("tenure: withdrawn: finish and return, the lease is given back then")
	// ErrHandOver means HandOver was called.
	ErrHandOver = errors.New("tenure: hand-over: finish and return, the successor takes over then")
	// ErrShutdown means the context of Run ended.
	ErrShutdown = errors.New("tenure: shutdown: finish and return, the lease is given back then")
	// ErrIneligible means this member is not eligible and another member is. The reason, which the
	// error includes, comes from Options.Eligible or from the store that denies this member's
	// commits.
	ErrIneligible = errors.New("tenure: not eligible: finish and return, an eligible member takes over then")
	// ErrFailback means a member with a higher priority has been eligible for Options.Failback.
	ErrFailback = errors.New("tenure: failback: finish and return, a member with a higher priority takes over then")
)

// Errors that a *RevokedError matches in addition to ErrLost if no error from the store gives the
// reason.
var (
	// ErrLapsed means no heartbeat succeeded in time, so others may own the shard.
	ErrLapsed = errors.New("trust lapsed: no heartbeat succeeded in time")
	// ErrDrainBudget means the handler was asked to stop and did not return in time.
	ErrDrainBudget = errors.New("drain budget spent")
	// ErrStalled means the handler called Lease.Progress too rarely.
	ErrStalled = errors.New("handler stalled")
	// ErrReleased means the handler returned, so the lease was given back.
	ErrReleased = errors.New("tenure: lease given back: its handler returned")
)

var (
	// ErrUnknown means the outcome of a commit is not known: it may have been applied, or may
	// still be. The log, read through a later lease, shows the outcome.
	ErrUnknown = errors.New("outcome unknown")
	// ErrContended means Contend was called for a shard for which this member already contends.
	ErrContended error = errtext.NotApplied("already contended")
	// ErrStopped means Run has ended, or is ending.
	ErrStopped = errors.New("elector stopped")
	// ErrStoreLost means a failover or restore lost acknowledged commits. See LostError.
	ErrStoreLost = errors.New("the store lost acknowledged commits")
	// ErrStuck means a handler did not return. See StuckError.
	ErrStuck = errors.New("handler stuck")
)

// NotApplied reports whether err, from a Commit or a call to a backend, means that nothing was or
// will be applied (rule E1). NotApplied returns false for nil. Errors of other packages can report
// the same through a NotApplied method.
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

// RevokedError names the lease that ended and the reason. It matches ErrLost and its cause:
// ErrLapsed, ErrFenced, ErrSessionLost, ErrStoreChanged, ErrDrainBudget, ErrStalled, ErrStopped
// or ErrReleased.
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

// StuckError names the shards whose handlers did not return within the drain budget. Their leases
// are revoked but not released, because the handlers' work may continue. It matches ErrStuck.
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

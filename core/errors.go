package core

import (
	"errors"
	"fmt"
	"strings"

	"github.com/tenure-go/tenure/core/driver"
)

// The contract's errors that applications meet (rule E1). An error of these
// means "certainly not applied".
var (
	ErrFenced       = driver.ErrFenced
	ErrSessionLost  = driver.ErrSessionLost
	ErrHeld         = driver.ErrHeld
	ErrNoTarget     = driver.ErrNoTarget
	ErrConflict     = driver.ErrConflict
	ErrInvalid      = driver.ErrInvalid
	ErrTooLarge     = driver.ErrTooLarge
	ErrUnsupported  = driver.ErrUnsupported
	ErrStoreChanged = driver.ErrStoreChanged
	ErrClosed       = driver.ErrClosed
	ErrRetry        = driver.ErrRetry
	ErrTrimmed      = driver.ErrTrimmed
)

// Why a handler's context ended: context.Cause of it matches one of these.
var (
	// ErrWithdrawn: Withdraw was called. The lease is still held.
	ErrWithdrawn = errors.New("tenure: withdrawn: finish and return, the lease is given back then")
	// ErrHandover: HandOver was called. The lease is still held.
	ErrHandover = errors.New("tenure: handover: finish and return, the successor takes over then")
	// ErrShutdown: the context of Run ended. The lease is still held.
	ErrShutdown = errors.New("tenure: shutdown: finish and return, the lease is given back then")
	// ErrLost: the lease may not be used any more. See RevokedError.
	ErrLost = errors.New("lease lost")
)

// What a lost lease's error matches beside ErrLost, when no error of the store
// says it.
var (
	// ErrLapsed: no heartbeat succeeded in time, so others may own the shard.
	ErrLapsed = errors.New("trust lapsed: no heartbeat succeeded in time")
	// ErrDrainBudget: the handler was asked to stop and did not in time.
	ErrDrainBudget = errors.New("drain budget spent")
	// ErrStalled: the handler called Lease.Progress too rarely.
	ErrStalled = errors.New("handler stalled")
	// ErrReleased: the handler returned, so the lease was given back. Not a loss.
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
	// ErrStuck: a handler did not return. See StuckError.
	ErrStuck = errors.New("handler stuck")
)

// NotApplied reports whether err, of a Commit or of a call to a backend, says that
// nothing was applied, now or later (rule E1). It is false for nil.
func NotApplied(err error) bool {
	if errors.Is(err, ErrUnknown) {
		return false
	}
	return driver.NotApplied(err) || errors.Is(err, ErrLost) || errors.Is(err, ErrReleased)
}

// RevokedError says which lease ended and why. It matches ErrLost unless the
// lease was given back, and beside it what caused it: ErrLapsed, ErrFenced,
// ErrSessionLost, ErrStoreChanged, ErrDrainBudget, ErrStalled or ErrReleased.
type RevokedError struct {
	Fence Fence
	Cause Cause
}

func (e *RevokedError) Error() string {
	return fmt.Sprintf("tenure: shard %q: the lease with token %d ended: %v", e.Fence.Shard, e.Fence.Token, e.Cause)
}

// Is makes the error match as its type's comment says.
func (e *RevokedError) Is(target error) bool {
	if target == ErrLost {
		return e.sentinel() != ErrReleased
	}
	return target == e.sentinel()
}

func (e *RevokedError) sentinel() error {
	switch e.Cause {
	case CauseLapsed:
		return ErrLapsed
	case CauseFenced, CausePreempted:
		return ErrFenced
	case CauseSessionLost:
		return ErrSessionLost
	case CauseStoreChanged:
		return ErrStoreChanged
	case CauseDrainBudget:
		return ErrDrainBudget
	case CauseStalled:
		return ErrStalled
	}
	return ErrReleased
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

func isRetryable(err error) bool { return errors.Is(err, ErrRetry) || errors.Is(err, ErrNoTarget) }

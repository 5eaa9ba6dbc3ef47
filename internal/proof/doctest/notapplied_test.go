package doctest

import (
	"errors"
	"fmt"
	"regexp"
	"testing"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/effect"
	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/lock"
	"github.com/tenure-go/tenure/sharding"
	"github.com/tenure-go/tenure/sharding/route"
	"github.com/tenure-go/tenure/sharding/route/routegrpc"
)

// TestNotApplied: core.NotApplied returns the right answer for every exported error of these
// packages. The answer is true if the error means that nothing was written.
func TestNotApplied(t *testing.T) {
	t.Parallel()
	other := errors.New("other")
	want := map[string]map[bool][]error{
		"core/driver": {
			true: {
				driver.ErrFenced, driver.ErrSessionLost, driver.ErrHeld, driver.ErrNoTarget, driver.ErrConflict, driver.ErrInvalid,
				driver.ErrTooLarge,
				driver.ErrUnsupported, driver.ErrStoreChanged, driver.ErrClosed, driver.ErrRetry, driver.ErrDamaged, driver.ErrLost,
				&driver.ConflictError{}, &driver.DamagedError{}, &driver.FencedError{}, &driver.HeldError{}, &driver.SessionLostError{},
			},
			false: {
				driver.ErrDenied,  // this error alone does not show it
				driver.ErrTrimmed, // of a read
				&driver.TrimmedError{},
				&driver.MissingError{}, // of opening
			},
		},
		"core": {
			true: {
				core.ErrFenced, core.ErrSessionLost, core.ErrNoTarget, core.ErrConflict, core.ErrInvalid, core.ErrTooLarge,
				core.ErrUnsupported, core.ErrStoreChanged, core.ErrClosed, core.ErrRetry, core.ErrDamaged, core.ErrLost, core.ErrContended,
				&core.ConflictError{}, &core.DamagedError{}, &core.FencedError{}, &core.SessionLostError{}, &core.RevokedError{},
			},
			false: {
				core.ErrDenied, core.ErrTrimmed, &core.TrimmedError{}, core.ErrUnknown,
				// These are causes of a context that ended: a commit may be in progress.
				core.ErrWithdrawn, core.ErrHandOver, core.ErrShutdown, core.ErrIneligible, core.ErrFailback,
				core.ErrLapsed, core.ErrDrainBudget, core.ErrStalled, core.ErrReleased,
				core.ErrStopped, // of Update: it may be stored
				core.ErrStuck, &core.StuckError{}, core.ErrStoreLost, &core.LostError{}, &core.PermanentError{Err: other},
			},
		},
		"lock":                     {true: {lock.ErrHeld}},
		"sharding":                 {true: {sharding.ErrNoOwner, sharding.ErrMoved, &sharding.MovedError{}}},
		"sharding/route":           {true: {route.ErrAddress}},
		"sharding/route/routegrpc": {true: {&routegrpc.OwnerError{}, &routegrpc.OwnerError{Node: "a"}}},
		"effect": {
			true:  {effect.ErrFull},
			false: {effect.ErrInDoubt, &effect.InDoubtError{}, effect.ErrFailed, &effect.FailedError{Err: other}, effect.ErrNotKept},
		},
		"fence": {
			true:  {&fence.RefusedError{}, &fence.ForeignError{}},
			false: {fence.ErrBusy /* the mark may be raised */, fence.ErrNoRow},
		},
	}
	listed := regexp.MustCompile(`^([a-z/]+): (var Err[A-Z]\w*|type \w+Error (struct|= driver\.\w+))$`)
	exported := make(map[string]int)
	for line := range exportedNow(t) {
		if m := listed.FindStringSubmatch(line); m != nil {
			exported[m[1]]++
		}
	}
	exported["sharding/route/routegrpc"]++ // it is tried twice
	for pkg, answers := range want {
		n := 0
		for answer, all := range answers {
			for _, err := range all {
				if n++; core.NotApplied(fmt.Errorf("wrapped: %w", err)) != answer {
					t.Errorf("%s: NotApplied is %v for %T %q", pkg, !answer, err, err)
				}
				if core.NotApplied(fmt.Errorf("%w: %w", core.ErrUnknown, err)) {
					t.Errorf("%s: NotApplied is true where the outcome is unknown, for %T %q", pkg, err, err)
				}
			}
		}
		if n != exported[pkg] {
			t.Errorf("%s: %d errors are tried, and it exports %d: add a row for each", pkg, n, exported[pkg])
		}
	}
}

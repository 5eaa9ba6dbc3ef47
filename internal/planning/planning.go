// Package planning is how internal/simulation drives the planner of package sharding.
package planning

import (
	"time"

	"github.com/tenure-go/tenure/core"
)

// Planner plans as an assigner does, and has the assignments that its plans result in.
type Planner interface {
	// Next plans from a view, at now after any fixed point. It returns the shards that
	// it moves, as indices in the order of their names, whether it planned anything, and
	// whether something may be left to do although the view does not change.
	Next(now time.Duration, v *core.View) (moved []int32, planned, again bool)
	// Restart is a new assigner, which knows the assignments only.
	Restart()
	// Owner is the session that a shard is assigned to, and Heir the one that takes it
	// over when its owner dies; empty if there is none.
	Owner(shard int32) core.SessionID
	Heir(shard int32) core.SessionID
}

package follower

import (
	"errors"
	"fmt"

	"github.com/tenure-go/tenure/core"
)

var (
	// ErrMoved means the batch does not begin at the shard's position. See Applier.
	ErrMoved = errors.New("position moved")
	// ErrOrder means the store returned an entry whose number is not the next number, or whose
	// token is lower than that of the preceding entry (L1, T2). The entry is not applied.
	ErrOrder = errors.New("log out of order")
	// ErrStale means the projection lags behind. See StaleError.
	ErrStale = errors.New("stale")
	// ErrCorrupt means a position file or a snapshot is damaged. No part of it was used.
	ErrCorrupt = errors.New("corrupt")
	// ErrNoSnapshot means entries were trimmed, and no snapshot covers them.
	ErrNoSnapshot = errors.New("no snapshot covers the trimmed entries")
	// ErrStuck means an Applier did not return. See Options.DrainBudget.
	ErrStuck = errors.New("applier stuck")
)

// StoreChangedError reports that the position belongs to another store, or that the store lost
// entries (T8). It matches core.ErrStoreChanged.
type StoreChangedError struct {
	Applier  string
	Position Position // of the Applier; zero if the whole store was replaced
	Found    string   // the state of the store that was found instead
}

func (e *StoreChangedError) Error() string {
	if e.Position == (Position{}) {
		return fmt.Sprintf("tenure: follower %q: the store is not the one that its positions belong to: %s; if that "+
			"is intended, rebuild the projection and delete its positions", e.Applier, e.Found)
	}
	return fmt.Sprintf("tenure: follower %q applied shard %q up to entry %d with token %d, but %s: the store lost "+
		"entries; find out which effects to undo, then rebuild the projection and delete its positions",
		e.Applier, e.Position.Shard, e.Position.Seq, e.Position.Token, e.Found)
}

// Is reports whether target is core.ErrStoreChanged.
func (e *StoreChangedError) Is(target error) bool { return target == core.ErrStoreChanged }

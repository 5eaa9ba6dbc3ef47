package follower

import (
	"errors"
	"fmt"

	"github.com/tenure-go/tenure/core"
)

var (
	// ErrMoved means that a batch does not begin at the shard's position. See Applier.
	ErrMoved = errors.New("position moved")
	// ErrOrder means that the store returned an entry out of order (L1, T2). Either its number is
	// not the next number, or its token is lower than the preceding entry's token. The Tailer does
	// not apply such an entry.
	ErrOrder = errors.New("log out of order")
	// ErrStale means that the projection lags behind. See StaleError.
	ErrStale = errors.New("stale")
	// ErrCorrupt means that a position file or a snapshot is damaged. Nothing in the file or
	// snapshot was used.
	ErrCorrupt = errors.New("corrupt")
	// ErrNoSnapshot means that entries were trimmed and no snapshot covers them.
	ErrNoSnapshot = errors.New("no snapshot covers the trimmed entries")
	// ErrStuck means that an Applier did not return. See Options.DrainBudget.
	ErrStuck = errors.New("applier stuck")
)

// StoreChangedError reports that the position belongs to a different store, or that the store has
// lost entries (T8). The error matches core.ErrStoreChanged.
type StoreChangedError struct {
	Applier  string
	Position Position // the Applier's position; zero if the whole store was replaced
	Found    string   // what the store contains instead
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

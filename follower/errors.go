package follower

import (
	"errors"
	"fmt"

	"github.com/tenure-go/tenure/core"
)

var (
	// ErrMoved: the shard's position is not where the batch begins. See Applier.
	ErrMoved = errors.New("position moved")
	// ErrOrder: the store answered with entries out of order. See OrderError.
	ErrOrder = errors.New("log out of order")
	// ErrStale: the projection lags. See StaleError.
	ErrStale = errors.New("stale")
	// ErrCorrupt: a position file or a snapshot is damaged. No part of it was used.
	ErrCorrupt = errors.New("corrupt")
	// ErrNoSnapshot: entries were trimmed, and no snapshot covers them.
	ErrNoSnapshot = errors.New("no snapshot covers the trimmed entries")
	// ErrStuck: an Applier did not return. See Options.DrainBudget.
	ErrStuck = errors.New("applier stuck")
)

// StoreChangedError says that the position belongs to another store, or that the store lost
// entries (T8). It matches core.ErrStoreChanged.
type StoreChangedError struct {
	Applier  string
	Position Position // of the Applier; zero if the whole store was replaced
	Found    string   // the store's state instead
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

// OrderError is an entry that does not follow the entry before it: its number is not the next, or
// its token is lower (L1, T2). It is not applied. It matches ErrOrder.
type OrderError struct {
	After Position // the entry before
	Got   Position
}

func (e *OrderError) Error() string {
	if e.Got.Seq != e.After.Seq+1 {
		return fmt.Sprintf("tenure: shard %q: entry %d came after entry %d: the store's answer has a gap",
			e.After.Shard, e.Got.Seq, e.After.Seq)
	}
	return fmt.Sprintf("tenure: shard %q: entry %d has token %d, lower than %d of the entry before: refused",
		e.After.Shard, e.Got.Seq, e.Got.Token, e.After.Token)
}

// Is reports whether target is ErrOrder.
func (e *OrderError) Is(target error) bool { return target == ErrOrder }

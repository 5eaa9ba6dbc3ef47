package follower

import (
	"fmt"
	"time"

	"github.com/tenure-go/tenure/core"
)

// Lag is how far a shard's projection is behind the log, as this process knows it.
// Where several Appliers follow a shard it is that of the one furthest behind.
type Lag struct {
	Shard   string   // empty in a total
	Applier string   // that is furthest behind
	Applied core.Seq // last entry applied
	Head    core.Seq // last entry that is known
	Entries int64    // known and not applied

	// Time is how long ago this process learned of the oldest entry that it has not
	// applied, 0 without one; or, while the stream fails, since when it cannot know of
	// new ones, if that is longer. Entries that it learned of after the stream failed
	// count from when it last worked, and those that were there before Run began, or
	// before a position went back, as some 292 years old: the longest Duration there
	// is. Where there are many unapplied entries it may be somewhat too large, never
	// too small.
	Time time.Duration
	// Known is false until the store was heard for the first time, and after Run.
	Known bool
	// Err is why the Applier does not advance, or why the stream fails; nil if both
	// work.
	Err error
}

// StaleError says that a projection may not serve a read. It matches ErrStale, and
// every error that Lag.Err matches.
type StaleError struct {
	Bound time.Duration
	Lag   Lag
}

func (e *StaleError) Error() string {
	why := ""
	if e.Lag.Err != nil {
		why = ": " + e.Lag.Err.Error()
	}
	if !e.Lag.Known {
		return fmt.Sprintf("tenure: shard %q: nothing is known of its log yet%s", e.Lag.Shard, why)
	}
	return fmt.Sprintf("tenure: shard %q is %d entries and %v behind, above the bound of %v%s", e.Lag.Shard,
		e.Lag.Entries, e.Lag.Time, e.Bound, why)
}

// Is makes a StaleError match ErrStale.
func (e *StaleError) Is(target error) bool { return target == ErrStale }

func (e *StaleError) Unwrap() error { return e.Lag.Err }

package follower

import (
	"fmt"
	"time"

	"github.com/tenure-go/tenure/core"
)

// Lag describes how far a shard's projection is behind the shard's log, as far as this process
// knows. If several Appliers follow the shard, Lag describes the Applier that is furthest behind.
type Lag struct {
	Shard   string   // empty in a total lag
	Applier string   // the Applier that is furthest behind
	Applied core.Seq // number of the last entry applied
	Head    core.Seq // number of the last entry known
	Entries int64    // number of entries that are known but not applied

	// Time is the time since this process learned of the oldest entry that it has not applied. Time
	// is 0 if the process has applied all known entries. While the stream fails, Time is at least
	// the time since the process was last able to learn of entries. If the process learns of an
	// entry after the stream has failed, the entry's age counts from the time when the stream last
	// worked. An entry from before Run began, or from before a position went back, counts as about
	// 292 years old, the longest Duration. If many entries have not been applied, Time may be
	// somewhat too large, but it is never too small.
	Time time.Duration
	// Known is false before the store's first answer, and after Run has ended.
	Known bool
	// Err is the Applier's or the stream's current error. Err is nil if both work.
	Err error
}

// StaleError reports that a projection may not serve a read. The error matches ErrStale and every
// error that Lag.Err matches.
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

// Is reports whether target is ErrStale.
func (e *StaleError) Is(target error) bool { return target == ErrStale }

func (e *StaleError) Unwrap() error { return e.Lag.Err }

package follower

import (
	"fmt"
	"time"

	"github.com/tenure-go/tenure/core"
)

// Lag is how far a shard's projection is behind the log, as this process knows it. If several
// Appliers follow the shard, it is the lag of the Applier furthest behind.
type Lag struct {
	Shard   string   // empty in a total
	Applier string   // the Applier furthest behind
	Applied core.Seq // last entry applied
	Head    core.Seq // last entry known
	Entries int64    // known and not applied

	// Time is the time since this process learned of the oldest entry that it has not applied, or
	// 0 if it has applied all. While the stream fails, it is at least the time since the process
	// could last learn of entries. An entry that was learned of after the stream failed counts
	// from when the stream last worked. An entry from before Run began, or from before a position
	// went back, counts as about 292 years old, the longest Duration. With many unapplied
	// entries, Time may be somewhat too large, but never too small.
	Time time.Duration
	// Known is false before the store's first answer, and after Run has ended.
	Known bool
	// Err is the reason why the Applier does not advance, or why the stream fails. It is nil if
	// both work.
	Err error
}

// StaleError says that a projection may not serve a read. It matches ErrStale and every error that
// Lag.Err matches.
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

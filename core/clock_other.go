//go:build !linux

package core

import "time"

// bootAhead returns false, because the standard library has no boot clock for this system.
// Suspended time therefore counts only if the monotonic clock includes it.
func bootAhead() (time.Duration, bool) { return 0, false }

//go:build !linux

package core

import "time"

// bootAhead returns false, because the standard library offers no boot clock here. Suspended time
// therefore counts only if the monotonic clock counts it.
func bootAhead() (time.Duration, bool) { return 0, false }

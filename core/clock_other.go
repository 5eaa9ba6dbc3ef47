//go:build !linux

package core

import "time"

// bootAhead: there is no boot clock to read with the standard library. Suspended
// time then counts only where the monotonic clock counts it.
func bootAhead() (time.Duration, bool) { return 0, false }

//go:build unix

package main

import (
	"time"

	"golang.org/x/sys/unix"
)

// monotonic reads the host's monotonic clock, in nanoseconds. Processes on the same host can
// compare these times.
func monotonic() int64 {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		return time.Now().UnixNano() // only figures depend on this time
	}
	return t.Nano()
}

//go:build unix

package main

import (
	"time"

	"golang.org/x/sys/unix"
)

// monotonic reads the host's monotonic clock, in nanoseconds, which processes of
// one host can compare.
func monotonic() int64 {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		return time.Now().UnixNano() // the best there is; only figures depend on it
	}
	return t.Nano()
}

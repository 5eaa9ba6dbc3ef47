//go:build unix

package main

import (
	"time"

	"golang.org/x/sys/unix"
)

// monotonic returns the host's monotonic clock in nanoseconds, which processes of one host can
// compare.
func monotonic() int64 {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		return time.Now().UnixNano() // only figures depend on it
	}
	return t.Nano()
}

//go:build !linux

package history

import (
	"fmt"
	"os"
	"runtime"
	"time"
)

// started ties the instants to the process, because the standard library offers no clock here that
// is both monotonic and shared by processes.
var started = time.Now()

// Now reads the clock. Its instants are valid only within one process.
func Now() Instant { return Instant(1 + time.Since(started)) }

// clockID returns the clock's name. No other process has the same one.
func clockID() string {
	return fmt.Sprintf("%s-%d-%d", runtime.GOOS, os.Getpid(), started.UnixNano())
}

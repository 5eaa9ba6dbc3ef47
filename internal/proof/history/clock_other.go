//go:build !linux

package history

import (
	"fmt"
	"os"
	"runtime"
	"time"
)

// started is the start of this process, to which Instants are relative. On this system, the
// standard library offers no monotonic clock that processes share.
var started = time.Now()

// Now reads the clock. An Instant is valid only within the process that read it.
func Now() Instant { return Instant(1 + time.Since(started)) }

// clockID returns the clock's name. Each process has a different name.
func clockID() string {
	return fmt.Sprintf("%s-%d-%d", runtime.GOOS, os.Getpid(), started.UnixNano())
}

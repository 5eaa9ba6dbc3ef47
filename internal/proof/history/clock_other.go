//go:build !linux

package history

import (
	"fmt"
	"os"
	"runtime"
	"time"
)

// started makes instants relative to this process, because on this system the standard library has
// no monotonic clock that processes share.
var started = time.Now()

// Now reads the clock. Its instants are valid only within one process.
func Now() Instant { return Instant(1 + time.Since(started)) }

// clockID returns the clock's name, which no other process has.
func clockID() string {
	return fmt.Sprintf("%s-%d-%d", runtime.GOOS, os.Getpid(), started.UnixNano())
}

//go:build !linux

package history

import (
	"fmt"
	"os"
	"runtime"
	"time"
)

// started ties the instants to the process, because the standard library reads
// no clock here that is both monotonic and shared by processes.
var started = time.Now()

// Now reads the clock: within one process only.
func Now() Instant { return Instant(1 + time.Since(started)) }

// clockID names the clock: no other process shares it.
func clockID() string {
	return fmt.Sprintf("%s-%d-%d", runtime.GOOS, os.Getpid(), started.UnixNano())
}

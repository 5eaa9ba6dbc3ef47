package core

import (
	"syscall"
	"time"
	"unsafe"
)

const (
	clockMonotonic = 1
	clockBoottime  = 7
)

// bootAhead returns how far the boot clock is ahead of the monotonic clock. Only the boot clock
// counts suspended time. Both clocks are read with system calls, so that a test's fake time does
// not affect the difference.
func bootAhead() (time.Duration, bool) {
	best, found := time.Duration(0), false
	for range 3 {
		before, ok1 := readClock(clockMonotonic)
		boot, ok2 := readClock(clockBoottime)
		after, ok3 := readClock(clockMonotonic)
		if !ok1 || !ok2 || !ok3 {
			return 0, false
		}
		if d := boot - after; !found || d > best { // the boot clock is at least d ahead
			best, found = d, true
		}
		if after-before < minSuspend/10 {
			break
		}
	}
	return best, found
}

func readClock(id uintptr) (time.Duration, bool) {
	var ts syscall.Timespec
	_, _, errno := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, id, uintptr(unsafe.Pointer(&ts)), 0)
	return time.Duration(ts.Nano()), errno == 0
}

package history

import (
	"os"
	"strings"
	"syscall"
	"unsafe"
)

// Now reads the clock. It is exact over processes, which is why it asks the
// kernel and does not derive the instant from a time.Time.
func Now() Instant {
	const clockMonotonic = 1
	var ts syscall.Timespec
	if _, _, errno := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, clockMonotonic, uintptr(unsafe.Pointer(&ts)),
		0); errno != 0 {
		panic("tenure: history: the kernel has no monotonic clock: " + errno.Error())
	}
	return Instant(ts.Nano())
}

// clockID names the clock: two processes share it if they have the same.
func clockID() string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "linux"
	}
	return strings.TrimSpace(string(b))
}

package history

import (
	"os"
	"strings"
	"syscall"
	"unsafe"
)

// Now reads the clock. It asks the kernel, because an instant derived from a time.Time would not be
// exact between processes.
func Now() Instant {
	const clockMonotonic = 1
	var ts syscall.Timespec
	if _, _, errno := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, clockMonotonic, uintptr(unsafe.Pointer(&ts)),
		0); errno != 0 {
		panic("tenure: history: the kernel has no monotonic clock: " + errno.Error())
	}
	return Instant(ts.Nano())
}

// clockID returns the clock's name. Two processes share a clock if they have the same name.
func clockID() string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "linux"
	}
	return strings.TrimSpace(string(b))
}

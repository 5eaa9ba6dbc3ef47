package history

import (
	"os"
	"strings"
	"syscall"
	"unsafe"
)

// Now reads the kernel's clock directly. Processes could not exactly compare readings derived from
// time.Time values.
func Now() Instant {
	const clockMonotonic = 1
	var ts syscall.Timespec
	if _, _, errno := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, clockMonotonic, uintptr(unsafe.Pointer(&ts)),
		0); errno != 0 {
		panic("tenure: history: the kernel has no monotonic clock: " + errno.Error())
	}
	return Instant(ts.Nano())
}

// clockID returns the clock's name. Processes share a clock if their clocks have the same name.
func clockID() string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "linux"
	}
	return strings.TrimSpace(string(b))
}

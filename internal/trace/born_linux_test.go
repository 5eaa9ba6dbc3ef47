package trace_test

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"unsafe"

	"github.com/tenure-go/tenure/internal/trace"
)

// TestKilledAtBirth: a process that is killed as it writes the header leaves no file that counts as
// a trace.
func TestKilledAtBirth(t *testing.T) {
	t.Parallel()
	if dir := os.Getenv("TENURE_TEST_BORN"); dir != "" {
		// The kernel ends a process that writes beyond its limit, unless it handles the signal, as
		// Go's runtime does.
		var byDefault [4]uint64
		if _, _, errno := syscall.RawSyscall6(syscall.SYS_RT_SIGACTION, uintptr(syscall.SIGXFSZ),
			uintptr(unsafe.Pointer(&byDefault)), 0, 8, 0, 0); errno != 0 {
			t.Fatal(errno)
		}
		start(t, dir, 1<<20)
		return
	}
	dir := t.TempDir()
	c := exec.CommandContext(t.Context(), "sh", "-c", `ulimit -c 0; ulimit -f 0; exec "$0" -test.run '^TestKilledAtBirth$'`, os.Args[0])
	c.Env = append(os.Environ(), "TENURE_TEST_BORN="+dir)
	out, err := c.CombinedOutput()
	exit, _ := errors.AsType[*exec.ExitError](err)
	if exit == nil || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGXFSZ {
		t.Fatalf("it was not killed as it wrote: %v: %s", err, out)
	}
	if made, err := os.ReadDir(dir); err != nil || len(made) != 1 {
		t.Errorf("it left %d files, %v", len(made), err)
	}
	if left, err := trace.FilesIn(dir); err != nil || len(left) > 0 {
		t.Errorf("it left %d files that count as traces, %v", len(left), err)
	}
}

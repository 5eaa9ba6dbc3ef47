package trace_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/tenure-go/tenure/backends/memory"
	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/fsm"
	"github.com/tenure-go/tenure/internal/trace"
)

// TestKilledAtBirth: a process that is killed while it writes the header leaves no file that looks
// like a trace.
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

// TestFullDisk: if the disk is full when a member starts, or later, the member continues. A warning
// reports the full disk. When there is room again, the trace continues, with a gap that a reader
// reports.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	if dir := os.Getenv("TENURE_TEST_FULL"); dir != "" {
		synctest.Test(t, func(t *testing.T) { fullDisk(t, dir) })
		return
	}
	c := exec.CommandContext(t.Context(), os.Args[0], "-test.run", "^TestFullDisk$", "-test.v")
	c.Env = append(os.Environ(), "TENURE_TEST_FULL="+t.TempDir())
	out, err := c.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "tenure: trace incomplete") {
		t.Errorf("%v: %s", err, out)
	}
}

// fullDisk runs in a separate process, and limits the files of that process.
func fullDisk(t *testing.T, dir string) {
	room := func(n uint64) {
		t.Helper()
		var limit syscall.Rlimit
		err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &limit)
		limit.Cur = min(n, limit.Max)
		if err := errors.Join(err, syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit)); err != nil {
			t.Fatal(err)
		}
	}
	room(0)
	b, err := memory.Open(t.Context(), memory.New(), "ns", nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := core.RunSingleton(t.Context(), b, "s", func(context.Context, *core.Lease) error { return nil },
		&core.Options{Node: "n", TraceDir: dir, LockDir: "none"}); err != nil {
		t.Errorf("the member ended: %v", err)
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	l, warned := start(t, dir, 1<<20)
	expect := func(n int32) {
		t.Helper()
		time.Sleep(3 * period / 2)
		if warned.Load() != n {
			t.Errorf("%d warnings, want %d", warned.Load(), n)
		}
	}
	commits := driver.WriteNo(0)
	commit := func() {
		commits++
		l.Acked(trace.Acks{Fence: driver.Fence{Shard: "s", Token: 1}, From: commits, To: commits})
	}
	step := func() {
		l.Step(0, &fsm.Input{Kind: fsm.InWake}, nil)
		commit()
	}
	commit() // which is lost, and no step
	expect(1)
	room(1 << 40)
	time.Sleep(2 * time.Minute)
	step()
	expect(1)
	room(1)
	step()
	expect(2)
	room(1 << 40)
	time.Sleep(2 * time.Minute)
	step()
	l.Close(time.Minute)
	r, err := trace.Check(t.Context(), sources(t, dir), 0)
	if err != nil || len(r.Runs) != 1 || len(r.Unread)+len(r.Breaches) > 0 || r.Steps != 2 {
		t.Fatalf("%+v, %v", r, err)
	}
	notes := r.Runs[0].Notes
	if len(notes) != 2 || !strings.Contains(notes[0], "it begins with step 1") || !strings.Contains(notes[1], "ends in the middle") {
		t.Errorf("notes %q", notes)
	}
}

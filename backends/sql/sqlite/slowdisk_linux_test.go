package sqlite_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestSlowDisk runs three processes under strace, which delays each flush and records it. Two of
// the processes own nothing for most of the time, and flush less than once in two heartbeats.
// Heartbeats are not flushed, so a slow disk does not slow them (E4). The test logs the heartbeats'
// times, which depend on the machine.
func TestSlowDisk(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("-short: processes with a slow disk run in .ci/run")
	}
	strace, err := exec.LookPath("strace")
	if err != nil {
		t.Skip("strace, which delays system calls, is missing: make servers installs it")
	}
	const flush = 300 * time.Millisecond
	dir := t.TempDir()
	trace := func(i int) string { return filepath.Join(dir, fmt.Sprint(i)) }
	path := dbPath(t)
	open(t, path, nil) // makes the files while the disk is fast
	var processes []*process
	for i := range 3 {
		processes = append(processes, start(t, "measure", path, strace, "-f", "-qq", "--seccomp-bpf", "-o", trace(i),
			"-e", "trace=fsync,fdatasync", "-e", fmt.Sprintf("inject=fsync,fdatasync:delay_enter=%d", flush.Microseconds())))
	}
	for _, p := range processes {
		var lapses int
		var median, worst time.Duration
		line := p.next(t, 1)[0]
		if _, err := fmt.Sscanf(line, "%d %d %d", &median, &worst, &lapses); err != nil {
			t.Fatalf("line %q: %v", line, err)
		}
		t.Logf("flush %v, TTL %v: heartbeats, median %v, worst %v; %d lapses", flush, measuredTTL, median, worst, lapses)
	}
	for _, p := range processes {
		p.in.Close()
	}
	var flushes []int
	for i, p := range processes {
		if err := p.cmd.Wait(); err != nil {
			t.Error(err)
		}
		lines, err := os.ReadFile(trace(i))
		if err != nil {
			t.Fatal(err)
		}
		flushes = append(flushes, strings.Count(string(lines), "sync("))
	}
	slices.Sort(flushes)
	t.Logf("in at least %d heartbeats each, the processes flushed %d times", unmeasured+measured, flushes)
	if flushes[2] == 0 {
		t.Error("no process flushed anything, though one appended")
	}
	if 2*flushes[1] >= unmeasured+measured {
		t.Errorf("in at least %d heartbeats each, the processes flushed %d times", unmeasured+measured, flushes)
	}
}

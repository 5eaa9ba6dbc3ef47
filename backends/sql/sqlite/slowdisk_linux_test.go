package sqlite_test

import (
	"fmt"
	"os/exec"
	"slices"
	"testing"
	"time"
)

// TestSlowDisk plays three processes under strace, which delays each flush. At least half of the
// heartbeats of two of them are quicker than one: they wait for the writes of others at most,
// such as a claim where trust had lapsed (E4).
func TestSlowDisk(t *testing.T) {
	t.Parallel()
	strace, err := exec.LookPath("strace")
	if err != nil {
		t.Skip("strace, which delays system calls, is missing: install it")
	}
	const flush = 300 * time.Millisecond
	delayed := []string{strace, "-f", "-qq", "--seccomp-bpf", "-o", t.TempDir() + "/trace",
		"-e", "trace=fsync,fdatasync", "-e", fmt.Sprintf("inject=fsync,fdatasync:delay_enter=%d", flush.Microseconds())}
	path := dbPath(t)
	open(t, path, nil) // makes the files while the disk is quick
	var processes []*process
	for range 3 {
		processes = append(processes, start(t, "measure", path, delayed...))
	}
	var medians []time.Duration
	for _, p := range processes {
		var lapses int
		var median, worst time.Duration
		line := p.next(t, 1)[0]
		if _, err := fmt.Sscanf(line, "%d %d %d", &median, &worst, &lapses); err != nil {
			t.Fatalf("line %q: %v", line, err)
		}
		t.Logf("flush %v, TTL %v: heartbeats, median %v, worst %v; %d lapses", flush, measuredTTL, median, worst, lapses)
		medians = append(medians, median)
	}
	for _, p := range processes {
		p.in.Close()
	}
	slices.Sort(medians)
	if medians[1] >= flush {
		t.Errorf("the medians of heartbeats are %v, and one flush %v", medians, flush)
	}
	for _, p := range processes {
		if err := p.cmd.Wait(); err != nil {
			t.Error(err)
		}
	}
}

//go:build unix

package main

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestMain lets this test binary be a member, like the command's binary.
func TestMain(m *testing.M) {
	if os.Getenv(memberEnv) != "" {
		os.Exit(runMember(os.Stdin, os.Stdout))
	}
	os.Exit(m.Run())
}

// short returns arguments for a run of some seconds over the first departures of the embedded file.
func short(t *testing.T, more ...string) []string {
	t.Helper()
	rows := strings.SplitAfterN(embeddedFlights, "\n", 3002)
	path := filepath.Join(t.TempDir(), "flights.csv")
	if err := os.WriteFile(path, []byte(strings.Join(rows[:3001], "")), 0o600); err != nil {
		t.Fatal(err)
	}
	return append([]string{"-flights", path, "-duration", "5s", "-ttl", "1s", "-json"}, more...)
}

// atRest fails if a child process or a temporary file is left.
func atRest(t *testing.T, tmp string) {
	t.Helper()
	if pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil); !errors.Is(err, syscall.ECHILD) {
		t.Errorf("a child is left: process %d, %v", pid, err)
	}
	left, err := os.ReadDir(tmp)
	if err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// TestRun plays a short run with the fence, which must end without damage, and a run without the
// fence, which must end with damage. It is not parallel, because it looks for child processes.
func TestRun(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for _, c := range []struct {
		name string
		args []string
		code int
	}{
		{"fenced", nil, exitOK},
		{"unfenced", []string{"-unfenced"}, exitDamage},
	} {
		t.Run(c.name, func(t *testing.T) {
			runtime.LockOSThread() // each subtest has its own goroutine
			defer runtime.UnlockOSThread()
			playShort(t, c.code, c.args...)
		})
	}
}

// playShort plays a short run to its end. The run must have the given exit code, and leave nothing
// behind. The calling goroutine must be locked to its thread.
func playShort(t *testing.T, wantCode int, more ...string) *report {
	t.Helper()
	args := short(t, more...)
	tmp := t.TempDir()
	if err := os.Chmod(filepath.Dir(tmp), 0o711); err != nil { // a server may run as another user
		t.Fatal(err)
	}
	t.Setenv("TMPDIR", tmp)
	var out, progress strings.Builder
	code := run(t.Context(), args, &out, &progress)
	t.Logf("%s\n%s", progress.String(), out.String())
	if code != wantCode {
		t.Fatalf("exit code %d, want %d", code, wantCode)
	}
	atRest(t, tmp)
	r := &report{}
	if err := json.Unmarshal([]byte(out.String()), r); err != nil {
		t.Fatal(err)
	}
	if r.Departures != 3000 || r.Attempted == 0 {
		t.Errorf("%d departures, %d zombie writes: too little to judge", r.Departures, r.Attempted)
	}
	if len(r.Moves) != 7 || r.Boards.N != 3 || r.Boards.Wrong > 0 && !r.Unfenced {
		t.Errorf("moves %+v, boards %+v: want 7 times that members came and went, and 3 boards as the file says",
			r.Moves, r.Boards)
	}
	if r.Unfenced && (r.Damage.Superseded == 0 || r.Damage.Doubled == 0) {
		t.Errorf("damage %+v, want entries doubled and accepted under a superseded token", r.Damage)
	}
	if !r.Unfenced && r.Refused != r.Attempted {
		t.Errorf("%d of %d zombie writes refused, want all", r.Refused, r.Attempted)
	}
	return r
}

// TestInterrupted interrupts a run. The run must remove the database that it created.
func TestInterrupted(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	tmp := t.TempDir()
	args := short(t, "-dsn", filepath.Join(tmp, "board.db"))
	t.Setenv("TMPDIR", tmp)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	var out, errs strings.Builder
	if code := run(ctx, args, &out, &errs); code != exitInterrupted {
		t.Errorf("exit code %d, want %d; %s", code, exitInterrupted, errs.String())
	}
	if out.Len() != 0 {
		t.Errorf("a report of half a run: %s", out.String())
	}
	atRest(t, tmp)
}

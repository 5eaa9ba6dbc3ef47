package ample

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"
)

// recorder is a T that records how the test ended.
type recorder struct {
	testing.TB
	outcome string
}

func (r *recorder) Helper() {}

func (r *recorder) Errorf(format string, args ...any) {
	r.outcome = "failed: " + fmt.Sprintf(format, args...)
}

func (r *recorder) Skipf(format string, args ...any) {
	r.outcome = "skipped: " + fmt.Sprintf(format, args...)
	panic(r)
}

func (r *recorder) atMost(g *Gauge, took, most time.Duration) string {
	defer func() { _ = recover() }()
	g.AtMost("it", took, most)
	return r.outcome
}

func TestAtMost(t *testing.T) {
	notes := filepath.Join(t.TempDir(), "notes")
	if err := os.WriteFile(notes, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("STEP_NOTES", notes)
	for _, c := range []struct {
		name string
		noop time.Duration
		took time.Duration
		want string
	}{
		{"in time", time.Millisecond, time.Second, ""},
		{"in time on a slow machine", time.Second, time.Second, ""},
		{"late", time.Millisecond, 3 * time.Second, "failed: it took 3s, want at most 2s; a no-op took at most 1ms"},
		{"late on a slow machine", time.Second, 3 * time.Second, "skipped: machine too slow to tell: it took 3s, want at most 2s; " +
			"but a no-op took 1s, usually at most 10ms"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := &recorder{TB: t}
				g := Beside(r, 10*time.Millisecond, func() { time.Sleep(c.noop) })
				defer func() {
					if r.outcome != c.want {
						t.Errorf("got %q, want %q", r.outcome, c.want)
					}
				}()
				r.atMost(g, c.took, 2*time.Second)
			})
		})
	}
	if text, err := os.ReadFile(notes); err != nil || string(text) != "machine too slow to tell: it\n" {
		t.Errorf("the notes of the step have %q, %v; want one skip", text, err)
	}
}

// TestHangingNoop: the gauge also measures a no-op that has not returned.
func TestHangingNoop(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		hang := make(chan struct{})
		calls := 0
		g := Beside(t, time.Millisecond, func() {
			if calls++; calls == 2 {
				<-hang
			}
		})
		time.Sleep(time.Second)
		if slow := g.slowest(); slow < 900*time.Millisecond {
			t.Errorf("a no-op that hangs for nearly a second counts as %v", slow)
		}
		close(hang)
	})
}

func TestSoon(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		if Soon(t.Context(), func() bool { return false }) {
			t.Error("what is never true was reported as true")
		}
		if took := time.Since(began); took < Time || took > Time+time.Second {
			t.Errorf("gave up after %v, want %v", took, Time)
		}
		began = time.Now()
		Wait(t, "half of the time has passed", func() bool { return time.Since(began) > Time/2 })
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if Soon(ended, func() bool { return false }) {
			t.Error("what is never true was reported as true")
		}
		n := 0
		for range During(time.Second, 100*time.Millisecond) {
			n++
		}
		if n < 10 || n > 11 {
			t.Errorf("%d rounds in a second, each with a pause of 100 ms", n)
		}
	})
}

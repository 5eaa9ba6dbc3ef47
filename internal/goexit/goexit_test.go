package goexit

import (
	"errors"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
)

func TestCall(t *testing.T) {
	want := errors.New("its own")
	for name, c := range map[string]struct {
		f    func() error
		want error
	}{
		"returns": {func() error { return nil }, nil}, "fails": {func() error { return want }, want},
		"exits": {func() error { runtime.Goexit(); return nil }, Err},
	} {
		if err := Call(c.f); err != c.want {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	n := 0
	Told(func(x int) { n += x; runtime.Goexit() })(3)
	if n != 3 || Told[int](nil) != nil {
		t.Errorf("told %d, want 3", n)
	}
}

// A handler that calls Goexit for each line does not end the goroutine that logs. This includes
// handlers from With and WithGroup.
func TestLogger(t *testing.T) {
	lines := 0
	l := Logger(slog.New(slog.NewTextHandler(writer(func() { lines++; runtime.Goexit() }), nil)))
	l.Info("a")
	l.With("k", "v").WithGroup("g").Info("b")
	if lines != 2 {
		t.Errorf("%d lines, want 2", lines)
	}
}

type writer func()

func (w writer) Write(b []byte) (int, error) { w(); return len(b), nil }

var _ io.Writer = writer(nil)

// A panic ends the process before the caller continues. The trace contains the function's frames.
func TestPanic(t *testing.T) {
	const child = "TENURE_TEST_PANIC"
	if os.Getenv(child) != "" {
		_ = Call(theFunctionThatPanics)
		os.Exit(0)
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestPanic$")
	cmd.Env = append(os.Environ(), child+"=1")
	out, err := cmd.CombinedOutput()
	for _, want := range []string{"panic: its own", "theFunctionThatPanics"} {
		if err == nil || !strings.Contains(string(out), want) {
			t.Errorf("%v, without %q:\n%s", err, want, out)
		}
	}
}

func theFunctionThatPanics() error { panic("its own") }

package quorum

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"go.uber.org/zap"
)

// TestLogger: warnings and errors reach the application's logger with their fields. What etcd logs
// while it closes has level Debug.
func TestLogger(t *testing.T) {
	t.Parallel()
	synctest.Test(t, testLogger)
}

func testLogger(t *testing.T) {
	var out bytes.Buffer
	var closing atomic.Bool
	l := logger(slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug})), &closing)
	l.Info("quiet")
	l.With(zap.String("id", "7")).Warn("slow", zap.Int("took", 3))
	l.Error("broken", zap.Error(errors.New("no space")))
	closing.Store(true)
	l.Error("listener closed")
	for range 100 {
		l.Warn("repeated")
	}
	got := strings.Split(strings.TrimSpace(out.String()), "\n")
	want := []string{
		`level=WARN msg="etcd: slow" id=7 took=3`, `level=ERROR msg="etcd: broken" error="no space"`,
		`level=DEBUG msg="etcd: listener closed"`,
	}
	for i, w := range want {
		if i >= len(got) || !strings.HasSuffix(got[i], w) {
			t.Fatalf("line %d of the log is not %s: %q", i, w, got)
		}
	}
	if n := len(got) - len(want); n != 10 {
		t.Errorf("a message that was repeated 100 times has %d lines, want 10 in a second", n)
	}
}

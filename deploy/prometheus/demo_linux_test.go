package prometheus

import (
	"net/url"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tenure-go/tenure/internal/proof/ample"
)

// startDemonstration runs cmd/demo with its board at addr, on SQLite. The demonstration itself
// kills members, and stops a member in the middle of writes. It runs until the test ends.
func startDemonstration(t *testing.T, addr string) {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "demo")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "../../cmd/demo").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	cmd := exec.Command(binary, "-board", addr, "-duration", "36s", "-stay", "-ttl", "2s")
	said := &strings.Builder{}
	cmd.Stdout, cmd.Stderr = said, said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { defer close(ended); _ = cmd.Wait() }() // it is interrupted
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGINT)
		select {
		case <-ended:
		case <-time.After(ample.Time):
			_ = cmd.Process.Kill() // its members end with it
			<-ended
			t.Error("the demonstration does not end")
		}
		if t.Failed() {
			t.Logf("the demonstration said:\n%s", said)
		}
	})
}

// watchDemonstration checks that a member is killed and comes back. While the demonstration runs,
// an alert must fire and clear for the member that was stopped and wrote too late.
func (s *scraper) watchDemonstration(t *testing.T) {
	ample.Wait(t, "no member is gone", func() bool {
		return s.holds(t, `tenure_peer_events_total{job="demonstration",member="observer",event="gone"} > 0`)
	})
	ample.Wait(t, "its airports were not taken over", func() bool {
		return s.holds(t, `sum(tenure_takeover_seconds_count{job="demonstration"}) > 10`)
	})
	const alert = "TenureWritesRefused"
	ample.Wait(t, alert+" does not fire", func() bool { return slices.Contains(s.firing(t, demonstration), alert) })
	ample.Wait(t, alert+" does not clear", func() bool { return !slices.Contains(s.firing(t, demonstration), alert) })
	if !s.holds(t, `up{job="demonstration"} == 1`) {
		t.Error("the alert cleared because the demonstration ended")
	}
}

// holds reports whether an expression currently has a value.
func (s *scraper) holds(t *testing.T, expression string) bool {
	t.Helper()
	var body struct {
		Data struct{ Result []any }
	}
	s.get(t, "/api/v1/query?"+url.Values{"query": {expression}}.Encode(), &body)
	return len(body.Data.Result) > 0
}

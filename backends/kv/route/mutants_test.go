package route

import (
	"flag"
	"testing"
	"time"

	"github.com/tenure-go/tenure/internal/mutate"
)

var mutantsFlag = flag.Bool("mutants", false, "break the choice of servers, and see a test fail")

// TestMutants makes one change at a time, and expects the test that is named to fail.
func TestMutants(t *testing.T) {
	if !*mutantsFlag {
		t.Skip("needs -mutants: it builds the package once for each mutant")
	}
	for _, m := range []struct{ name, killer, old, new string }{
		{"heartbeats wait behind one without an answer", "TestSilentServerIsLeft", "if s.beats > 0 {", "if s.beats > 100 {"},
		{"calls wait on a silent server", "TestSilentServerIsLeft", "t.cancel(ErrSilent)", "_ = t"},
		{"new calls go to a silent server", "TestSilentServerIsLeft", "r.move(answered.Server)", "_ = answered"},
		{"a heartbeat without an answer ends with the calls", "TestSilentServerIsLeft", "if t.kind != beat && (i", "if (i"},
		{"a silent server is preferred for heartbeats", "TestSilentServerIsLeft", "		s.failed = r.events\n		if i == r.current {", "		if i == r.current {"},
		{"servers that stall together are suspect", "TestStallOfTheStore", "patience*took", "0*took"},
		{"a failure changes nothing", "TestFailureMoves", "r.move(r.best(t.Server))", "_ = t"},
		{"watches stay on a server that heartbeats left", "TestFailureMoves", "t.cancel(ErrMoved)", "_ = t"},
		{"a heartbeat ends later calls, too", "TestOneServer", "i != answered.Server || t.start.Before(answered.start)", "true"},
		{"one heartbeat ends calls again and again", "TestOneServer", "t.judged, silent = true, true", "silent = true"},
		{"calls outlive their backend", "TestLife", "t.cancel(context.Cause(r.life))", "_ = t"},
	} {
		t.Run(m.name, func(t *testing.T) {
			edit := mutate.Edit{File: "route.go", Old: m.old, New: m.new}
			if out, failed := mutate.Run(t, mutate.Build(t, edit), m.killer, time.Minute); !failed {
				t.Errorf("survived %s:\n%s", m.killer, out)
			}
		})
	}
}

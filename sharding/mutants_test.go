package sharding

import (
	"flag"
	"testing"
	"time"

	"github.com/tenure-go/tenure/internal/mutate"
)

var mutantsFlag = flag.Bool("mutants", false, "take each rule out of the package, and see a test fail")

// TestMutants takes one rule out at a time, and expects the test that is named to
// fail.
func TestMutants(t *testing.T) {
	mutate.All(t, *mutantsFlag, time.Minute, false, []mutate.Mutant{
		{Name: "W1: a plan that does not follow its predecessor is applied", Killer: "TestPlanFollowsItsPredecessor", Edits: []mutate.Edit{{
			File: "table.go", Old: "} else if c.Number != t.number+1 || t.names == nil {", New: "} else if t.names == nil {"}}},
		{Name: "W1: the plans after a gap are applied", Killer: "TestGapsWaitForABase", Edits: []mutate.Edit{{
			File: "log.go", Old: "if !c.Base && j.gap != nil {", New: "if false {"}}},
		{Name: "C12: a member that drains is planned like any other", Killer: "TestManyDrainAtOnce", Edits: []mutate.Edit{{
			File: "planner.go", Old: "Drain: m.Draining,", New: "Drain: false,"}}},
		{Name: "C12: a Manager leaves the member drained", Killer: "TestManagerAgain", Edits: []mutate.Edit{{
			File: "manager.go", Old: "	m.show(false)\n", New: "	m.draining = false\n"}}},
	})
}

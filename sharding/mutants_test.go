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
	if !*mutantsFlag {
		t.Skip("needs -mutants: it builds the package once for each mutant")
	}
	for _, m := range []struct {
		name, killer string
		edit         mutate.Edit
	}{
		{"W1: a plan that does not follow its predecessor is applied", "TestPlanFollowsItsPredecessor", mutate.Edit{
			File: "table.go", Old: "} else if c.Number != t.number+1 || t.names == nil {", New: "} else if t.names == nil {"}},
		{"W1: the plans after a gap are applied", "TestGapsWaitForABase", mutate.Edit{
			File: "log.go", Old: "if !c.Base && j.gap != nil {", New: "if false {"}},
	} {
		t.Run(m.name, func(t *testing.T) {
			if out, failed := mutate.Run(t, mutate.Build(t, m.edit), m.killer, time.Minute); !failed {
				t.Errorf("survived %s:\n%s", m.killer, out)
			}
		})
	}
}

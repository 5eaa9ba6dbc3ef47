package consul

import (
	"flag"
	"testing"
	"time"

	"github.com/tenure-go/tenure/internal/mutate"
)

var mutantsFlag = flag.Bool("mutants", false, "take each rule out of the backend, and see a test fail")

// TestMutants takes one rule out of the backend at a time, and expects the test that
// is named to fail.
func TestMutants(t *testing.T) {
	if !*mutantsFlag {
		t.Skip("needs -mutants: it builds the package once for each mutant")
	}
	for _, m := range []struct {
		name, killer string
		edits        []mutate.Edit
	}{
		{"O1: the leader answers reads without asking its peers", "TestReadsNeedMajority/leader", []mutate.Edit{{
			File: "store.go", Old: "RequireConsistent: true", New: "RequireConsistent: false"}}},
		{"O1: any server answers reads", "TestReadsNeedMajority/follower", []mutate.Edit{{
			File: "store.go", Old: "RequireConsistent: true", New: "AllowStale: true"}}},
	} {
		t.Run(m.name, func(t *testing.T) {
			if out, failed := mutate.Run(t, mutate.Build(t, m.edits...), m.killer, 2*time.Minute); !failed {
				t.Errorf("survived %s:\n%s", m.killer, out)
			}
		})
	}
}

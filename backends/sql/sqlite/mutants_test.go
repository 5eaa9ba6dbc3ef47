package sqlite

import (
	"flag"
	"testing"
	"time"

	"github.com/tenure-go/tenure/internal/mutate"
)

var mutantsFlag = flag.Bool("mutants", false, "take each rule out of the backend, and see the suite fail")

// TestMutants takes one rule out of the backend at a time, and expects the case of
// the suite that is named to fail.
func TestMutants(t *testing.T) {
	if !*mutantsFlag {
		t.Skip("needs -mutants: it builds the package once for each mutant")
	}
	for _, m := range []struct {
		name, killer string
		edit         mutate.Edit
	}{
		{"E1: transactions are deferred, and fail when they come to write", "TestWriteWaitsForTheOther", mutate.Edit{
			File: "writer.go", Old: "context.Background(), \"BEGIN IMMEDIATE\")", New: "context.Background(), \"BEGIN\")"}},
	} {
		t.Run(m.name, func(t *testing.T) {
			if out, failed := mutate.Run(t, mutate.Build(t, m.edit), m.killer, 2*time.Minute); !failed {
				t.Errorf("survived %s:\n%s", m.killer, out)
			}
		})
	}
}

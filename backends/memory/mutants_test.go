package memory_test

import (
	"flag"
	"testing"
	"time"

	"github.com/tenure-go/tenure/internal/mutate"
)

var mutantsFlag = flag.Bool("mutants", false, "take each rule out of package kv, and see the suite fail")

// TestMutants takes one rule out of package kv at a time, and expects the case of the
// suite that is named to fail.
func TestMutants(t *testing.T) {
	if !*mutantsFlag {
		t.Skip("needs -mutants: it builds the package once for each mutant")
	}
	for _, m := range []struct {
		name, killer string
		edit         mutate.Edit
	}{
		{"A3: a repeated claim is answered by the session alone", "TestConformance/Acquire/Idempotent", mutate.Edit{
			File: "../kv/acquire.go", Old: "if owner.Session == s.id && r.from == c.Seen.Token && owner != c.Seen {",
			New: "if owner.Session == s.id && r.from >= 0 && owner != c.Seen {"}},
		{"A3: a transfer is taken for done, whoever granted it", "TestConformance/Acquire/Idempotent", mutate.Edit{
			File: "../kv/acquire.go", Old: "case owner.Session == h.To && r.from == h.Fence.Token && owner.Token != h.Fence.Token:",
			New: "case owner.Session == h.To && r.from >= 0 && owner.Token != h.Fence.Token:"}},
		{"R1: a release compares existence only", "TestConformance/Release/StaleIsNoop", mutate.Edit{
			File: "../kv/release.go", Old: "If:  []Compare{{Key: key, Rev: at.rev}},", New: "If:  []Compare{{Key: key, Rev: Exists}},"}},
		{"A5: a transfer does not ask for its target", "TestConformance/Release/TransferToAbsentMemberRefused", mutate.Edit{
			File: "../kv/acquire.go", Old: "if h.To != s.id { // the batch's guard has it otherwise", New: "if false {"}},
	} {
		t.Run(m.name, func(t *testing.T) {
			if out, failed := mutate.Run(t, mutate.Build(t, m.edit), m.killer, time.Minute); !failed {
				t.Errorf("survived %s:\n%s", m.killer, out)
			}
		})
	}
}

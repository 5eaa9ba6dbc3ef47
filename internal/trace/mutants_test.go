package trace_test

import (
	"testing"
	"time"

	"github.com/tenure-go/tenure/internal/proof/mutate"
)

var mutantsFlag = mutate.Flag()

// TestMutants takes out one comparison of the checker at a time, or has a member trace less.
func TestMutants(t *testing.T) {
	mutate.All(t, mutantsFlag, time.Minute, true, []mutate.Mutant{
		{Name: "steps are not compared", Killer: "TestPlanted", Edits: []mutate.Edit{{
			File: "check.go", Old: "if did == does {", New: "if did == does || true {"}}},
		{Name: "what a step lacks is not seen", Killer: "TestPlanted", Edits: []mutate.Edit{{
			File: "check.go", Old: "for i := range max(len(want), len(rec.Out)) {", New: "for i := range min(len(want), len(rec.Out)) {"}}},
		{Name: "S1: leases are not compared", Killer: "TestPlanted", Edits: []mutate.Edit{{
			File: "check.go", Old: "over.to.Sub(g.from) > c.clockError &&", New: "false &&"}}},
		{Name: "S1: leases that were revoked do not count", Killer: "TestPlanted", Edits: []mutate.Edit{{
			File: "check.go", Old: "g.to, g.why = earlier(t.now, s.until), e.Cause", New: "g.to, g.why = g.from, e.Cause"}}},
		{Name: "S2: tokens may go back", Killer: "TestPlanted", Edits: []mutate.Edit{{
			File: "check.go", Old: "greatest != nil && g.fence.Token < greatest.fence.Token &&", New: "greatest != nil && false &&"}}},
		{Name: "S2: tokens may come again", Killer: "TestPlanted", Edits: []mutate.Edit{{
			File: "check.go", Old: "was := byToken[g.fence.Token]; was != nil {", New: "was := byToken[g.fence.Token]; false {"}}},
		{Name: "S3: commits may be acknowledged twice", Killer: "TestPlanted", Edits: []mutate.Edit{{
			File: "check.go", Old: "case b.From <= a.To:", New: "case false:"}}},
		{Name: "S3: tokens of commits are not compared", Killer: "TestPlanted", Edits: []mutate.Edit{{
			File: "check.go", Old: "case b.Fence.Token < a.Fence.Token:", New: "case false:"}}},
		{Name: "C3: session ids may come again", Killer: "TestPlanted", Edits: []mutate.Edit{{
			File: "check.go", Old: "} else if e.Member != nil {", New: "} else if false {"}}},
		{Name: "A2: the answer to a claim is not compared", Killer: "TestPlanted", Edits: []mutate.Edit{{
			File: "check.go", Old: "if f.Token > c.Seen.Token &&", New: "if true || f.Token > c.Seen.Token &&"}}},
		{Name: "C5: evictions are not compared", Killer: "TestPlanted", Edits: []mutate.Edit{{
			File: "check.go", Old: "if last.IsZero() || silent >=", New: "if true || silent >="}}},
		{Name: "C5: every eviction is a breach", Killer: "TestPlanted", Edits: []mutate.Edit{{
			File: "check.go", Old: "if last.IsZero() || silent >= s.ttl", New: "if last.IsZero() || silent >= 1000*s.ttl"}}},
		{Name: "a gap goes unnoticed", Killer: "TestLost", Edits: []mutate.Edit{{
			File: "check.go", Old: "if rec.Lost != 0 {", New: "if rec.Lost < 0 {"}}},
		{Name: "a lease counts as trusted over a gap", Killer: "TestGap", Edits: []mutate.Edit{{
			File: "check.go", Old: "	t.stop(format, args...)\n	t.endLeases()\n", New: "	t.stop(format, args...)\n"}}},
		{Name: "a beginning that is missing goes unnoticed", Killer: "TestRotation", Edits: []mutate.Edit{{
			File: "check.go", Old: "if head.Part == 0 {", New: "if head.Part >= 0 {"}}},
		{Name: "namespaces are mixed", Killer: "TestHostile", Edits: []mutate.Edit{{
			File: "check.go", Old: "if f.head.Namespace != first.Namespace ||", New: "if"}}},
		{Name: "memory has no bound", Killer: "TestLost", Edits: []mutate.Edit{{
			File: "log.go", Old: "if l.buf.Len() > maxBuffer {", New: "if l.buf.Len() < 0 {"}}},
		{Name: "files have no bound", Killer: "TestRotation", Edits: []mutate.Edit{{
			File: "log.go", Old: "if len(l.names) > 1 {", New: "if len(l.names) > 1000 {"}}},
		{Name: "a disk that fails is tried for ever", Killer: "TestDiskFails", Edits: []mutate.Edit{{
			File: "log.go", Old: "\t\t\tl.stop()\n\t\t\treturn\n", New: ""}}},
		{Name: "files are for everybody", Killer: "TestRotation", Edits: []mutate.Edit{{
			File: "log.go", Old: "0o600)", New: "0o644)"}}},
		{Name: "commits are not traced", Killer: "TestMembers", Edits: []mutate.Edit{{
			File: "../../core/commit.go", Old: "if d.l.e.traced != nil {", New: "if d.l.e.traced != nil && false {"}}},
		{Name: "a step is not traced", Killer: "TestMembers", Edits: []mutate.Edit{{
			File: "../../core/step.go", Old: "if e.traced != nil {", New: "if e.traced != nil && in.Kind != fsm.InBeaten {"}}},
		{Name: "steps before Run are not traced", Killer: "TestMembers", Edits: []mutate.Edit{{
			File: "../../core/step.go", Old: "if e.traced != nil {", New: "if e.traced != nil && e.phase != fresh {"}}},
		{Name: "the end is not written", Killer: "TestMembers", Edits: []mutate.Edit{{
			File: "../../core/elector.go", Old: "\te.endTrace()\n", New: ""}}},
	})
}

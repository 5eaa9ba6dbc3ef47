package operator

import (
	"testing"
	"time"

	"github.com/tenure-go/tenure/internal/proof/mutate"
)

var mutantsFlag = mutate.Flag()

func TestMutants(t *testing.T) {
	mutate.All(t, mutantsFlag, time.Minute, false, []mutate.Mutant{
		{Name: "a place is given as it was decided before the lease", Killer: "TestTwoAtOnce", Edits: []mutate.Edit{{
			File: "ask.go", In: "Writer.Ask", Old: "p.judge(&q, now); err != nil || !a.May {", New: "p.judge(&q, now); err != nil {"}}},
		{Name: "a view from before the lease decides", Killer: "TestStaleView", Edits: []mutate.Edit{{
			File: "write.go", In: "writing.write", Old: "x.w.stateUnder(ctx, l)", New: "x.w.state(ctx)"}}},
		{Name: "a decision that was cut short hides why", Killer: "TestDeniedHeartbeat", Edits: []mutate.Edit{{
			File: "write.go", In: "writing.write", Old: "(err != nil || d == nil) && ctx.Err() == nil)", New: "err != nil || d == nil)"}}},
		{Name: "a place does not end", Killer: "TestPlaceEnds", Edits: []mutate.Edit{{
			File: "ask.go", In: "picture.judge", Old: "if !r.Active(now) || Back(", New: "if Back("}}},
		{Name: "a node that is back stays away", Killer: "TestPlaceEnds", Edits: []mutate.Edit{{
			File: "ask.go", In: "picture.judge", Old: "!r.Active(now) || Back(r, p.view.Members) {", New: "!r.Active(now) {"}}},
		{Name: "a place ends as its node leaves", Killer: "TestPlaceEnds", Edits: []mutate.Edit{{
			File: "ask.go", In: "picture.judge",
			Old: "if r.Node == q.Node {", New: "if _, lives := nodes[r.Node]; !lives {\n\t\t\tcontinue\n\t\t}\n\t\tif r.Node == q.Node {"}}},
		{Name: "the budgets of those that hold places do not count", Killer: "TestBudgets", Edits: []mutate.Edit{{
			File: "ask.go", In: "picture.judge", Old: "a.Budget = min(a.Budget, g.away)", New: "_ = g"}}},
		{Name: "a node that asks for fewer keeps its yes", Killer: "TestAskAgain", Edits: []mutate.Edit{{
			File: "ask.go", In: "Answer.decide", Old: "case own != nil && own.Away <= q.Away:", New: "case own != nil:"}}},
		{Name: "asking again shortens a place", Killer: "TestAskAgain", Edits: []mutate.Edit{{
			File: "ask.go", In: "picture.place", Old: "if own.Expires.After(r.Expires) {", New: "if false {"}}},
		{Name: "the last node may be stopped", Killer: "TestNobodyLeft", Edits: []mutate.Edit{{
			File: "ask.go", In: "Answer.decide", Old: "case a.Up == 0:", New: "case false:"}}},
		{Name: "a place that is not understood is left out", Killer: "TestRecordsOfOthers", Edits: []mutate.Edit{{
			File: "ask.go", In: "Writer.picture",
			Old: "\t\tif err != nil {\n\t\t\treturn nil, err\n\t\t}\n\t\tp.stops", New: "\t\tif err != nil {\n\t\t\tcontinue\n\t\t}\n\t\tp.stops"}}},
		{Name: "members that only write rules count as away", Killer: "TestAway", Edits: []mutate.Edit{{
			File: "ask.go", In: "picture.nodes", Old: "\t\tif tool(m) {\n", New: "\t\tif false && tool(m) {\n"}}},
		{Name: "a Writer passes its lease on", Killer: "TestWriterReleases", Edits: []mutate.Edit{{
			File: "write.go", In: "Writer.Write",
			Old: "return one.write(ctx, l)", New: "err := one.write(ctx, l)\n\t\tdone()\n\t\t<-ctx.Done()\n\t\treturn err"}}},
	})
}

package sharding

import (
	"testing"
	"time"

	"github.com/tenure-go/tenure/internal/proof/mutate"
)

var mutantsFlag = mutate.Flag()

// TestMutants takes one rule out at a time, and expects the test that is named to
// fail.
func TestMutants(t *testing.T) {
	mutate.All(t, mutantsFlag, time.Minute, false, []mutate.Mutant{
		{Name: "W1: a plan that does not follow its predecessor is applied", Killer: "TestPlanFollowsItsPredecessor", Edits: []mutate.Edit{{
			File: "table.go", Old: "} else if c.Number != t.number+1 || t.names == nil {", New: "} else if t.names == nil {"}}},
		{Name: "W1: the plans after a gap are applied", Killer: "TestGapsWaitForABase", Edits: []mutate.Edit{{
			File: "log.go", Old: "if !c.Base && j.gap != nil {", New: "if false {"}}},
		{Name: "C12: a member that drains is planned like any other", Killer: "TestManyDrainAtOnce", Edits: []mutate.Edit{{
			File: "planner.go", Old: "Drain: m.Draining,", New: "Drain: false,"}}},
		{Name: "C15: a member that is not eligible is planned like any other", Killer: "TestPlanWithoutTheIneligible", Edits: []mutate.Edit{{
			File: "planner.go", Old: "m.Drain = m.Drain || some", New: "_ = m"}}},
		{Name: "C15: shards are moved among members that are not eligible", Killer: "TestPlanWithoutTheIneligible", Edits: []mutate.Edit{{
			File: "planner.go", Old: "c.Frozen = c.Frozen || len(barred) > 0 && !some", New: ""}}},
		{Name: "C15: shards follow a member's eligibility to and fro", Killer: "TestEligibilityMovesFew", Edits: []mutate.Edit{{
			File: "planner.go", Old: "\t\t\tp.strike(now, m.ID)\n\t\t}\n\t\tif p.barred", New: "\t\t}\n\t\tif p.barred"}}},
		{Name: "C12: a Manager leaves the member drained", Killer: "TestManagerAgain", Edits: []mutate.Edit{{
			File: "manager.go", Old: "	m.show(false)\n", New: "	m.draining = false\n"}}},
		{Name: "the operators' rules are not planned with", Killer: "TestOperators", Edits: []mutate.Edit{{
			File: "planner.go", Old: "Rules: p.Rules,", New: "Rules: Rules{},"}}},
		{Name: "an operator's rule does not end", Killer: "TestOperators", Edits: []mutate.Edit{{
			File: "operators.go", Old: "if !r.Active(now) {", New: "if false {"}}},
		{Name: "a move or resignation is never spent", Killer: "TestMoveOnce", Edits: []mutate.Edit{{
			File: "operators.go", Old: "r.Spent(at.Token) {", New: "false && r.Spent(at.Token) {"}}},
		{Name: "a resignation lifts an exclusion", Killer: "TestMoveOnce", Edits: []mutate.Edit{{
			File: "operators.go", Old: "slices.Concat(nodes, []string{at.Node})...", New: "slices.Concat(nodes[:0], []string{at.Node})..."}}},
		{Name: "an Elector moves what is assigned", Killer: "TestMoveOnce", Edits: []mutate.Edit{{
			File: "../internal/fsm/machine.go", Old: "return ok && m.shards[i].heirs != Heirs{}", New: "return false && ok && i < 0"}}},
		{Name: "a frozen namespace is balanced", Killer: "TestFreeze", Edits: []mutate.Edit{{
			File: "draft.go", Old: " && !d.c.Frozen {", New: " {"}}},
		{Name: "a frozen namespace is drained", Killer: "TestFreeze", Edits: []mutate.Edit{{
			File: "draft.go", Old: " && (!c.Frozen || c.Members[o].Drain) {", New: " {"}}},
	})
}

package tenuretest_test

import (
	"testing"
	"time"

	"github.com/tenure-go/tenure/internal/proof/mutate"
)

var mutantsFlag = mutate.Flag()

var mutants = []mutate.Mutant{
	{Name: "effects of a paused member are not held", Killer: "TestPlantedBugs/pause", Edits: []mutate.Edit{
		{File: "member.go", In: "Member.Do",
			Old: "\tif err := x.pass(context.Background(), Pause|Suspend); err != nil {\n\t\treturn err\n\t}\n\tm.w.effects.Lock()", New: "\tm.w.effects.Lock()"}}},
	{Name: "the clock of a suspended machine goes on", Killer: "TestSuspendedClockStandsStill", Edits: []mutate.Edit{
		{File: "../internal/virtual/virtual.go", In: "Process.missing", Old: "return d - d/crawl", New: "return 0 * d"}}},
	{Name: "a process finds out at once that it is suspended", Killer: "TestSuspendedClockStandsStill", Edits: []mutate.Edit{
		{File: "../internal/virtual/virtual.go", In: "Process.Ahead",
			Old: "return p.missed, true", New: "return p.missed + p.missing(), true"}}},
	{Name: "effects are answered always", Killer: "TestPlantedBugs/follower_lost_reply", Edits: []mutate.Edit{
		{File: "member.go", In: "Member.Do", Old: "\tif lost || gone", New: "\tif false && lost || gone"}}},
	{Name: "a crashed member knows that its write was not applied", Killer: "TestRefusedIsNotApplied", Edits: []mutate.Edit{
		{File: "link.go", In: "unheard", Old: "\t\treturn errUnheard\n", New: "\t\treturn gone\n"}}},
	{Name: "nobody crashes", Killer: "TestPlantedBugs/follower_crash", Edits: []mutate.Edit{
		{File: "member.go", In: "slot.apply", Old: "\tcase x.on:\n", New: "\tcase x.on && false:\n"}}},
	{Name: "the control has a fence", Killer: "TestControlHasNoFence", Edits: []mutate.Edit{
		{File: "member.go", In: "slot.start", Old: "if w.control {", New: "if false {"}}},
	{Name: "all members are down at once", Killer: "TestSchedule", Edits: []mutate.Edit{
		{File: "schedule.go", In: "World.schedule", Old: " || len(w.slots) > 1 && down == len(w.slots)-1", New: ""}}},
	{Name: "a member has two faults at once", Killer: "TestSchedule", Edits: []mutate.Edit{
		{File: "schedule.go", In: "World.schedule", Old: "free[m] > at || ", New: "false || "}}},
	{Name: "sessions of a replay have other ids", Killer: "TestPlantedBugs/all", Edits: []mutate.Edit{
		{File: "../core/elector.go", In: "NewElector", Old: "func() SessionID { return SessionID(p.SessionID()) }", New: "newSessionID"}}},
}

// TestMutants removes each fault in turn.
func TestMutants(t *testing.T) {
	mutate.All(t, mutantsFlag, time.Minute, true, mutants)
}

package route

import (
	"testing"
	"time"

	"github.com/tenure-go/tenure/internal/proof/mutate"
)

var mutantsFlag = mutate.Flag()

func TestMutants(t *testing.T) {
	mutate.All(t, mutantsFlag, time.Minute, false, []mutate.Mutant{
		{Name: "heartbeats wait behind one without an answer", Killer: "TestSilentServerIsLeft",
			Edits: []mutate.Edit{{File: "route.go", In: "Routes.begin", Old: "if s.beats > 0 {", New: "if s.beats > 100 {"}}},
		{Name: "calls wait on a silent server", Killer: "TestSilentServerIsLeft",
			Edits: []mutate.Edit{{File: "route.go", In: "Routes.suspect", Old: "t.cancel(ErrSilent)", New: "_ = t"}}},
		{Name: "new calls go to a silent server", Killer: "TestSilentServerIsLeft",
			Edits: []mutate.Edit{{File: "route.go", In: "Routes.suspect", Old: "r.move(answered.Server)", New: "_ = answered"}}},
		{Name: "a heartbeat without an answer ends with the calls", Killer: "TestSilentServerIsLeft",
			Edits: []mutate.Edit{{File: "route.go", In: "Routes.suspect", Old: "if t.kind != beat && (i", New: "if (i"}}},
		{Name: "a silent server is preferred for heartbeats", Killer: "TestSilentServerIsLeft",
			Edits: []mutate.Edit{{File: "route.go", In: "Routes.suspect", Old: "		s.failed = r.events\n		if i == r.current {",
				New: "		if i == r.current {"}}},
		{Name: "servers that stall together are suspect", Killer: "TestStallOfTheStore",
			Edits: []mutate.Edit{{File: "route.go", In: "Routes.suspect", Old: "patience*took", New: "0*took"}}},
		{Name: "a failure changes nothing", Killer: "TestFailureMoves",
			Edits: []mutate.Edit{{File: "route.go", In: "Trip.Done", Old: "r.move(r.best(t.Server))", New: "_ = t"}}},
		{Name: "a server that refuses heartbeats gets all of them", Killer: "TestElection",
			Edits: []mutate.Edit{{File: "route.go", In: "Trip.Done", Old: "s.refused++", New: "_ = s"}}},
		{Name: "a server that refused heartbeats gets none later", Killer: "TestElection",
			Edits: []mutate.Edit{{File: "route.go", In: "Trip.Done", Old: "r.servers[i].refused = 0", New: "_ = i"}}},
		{Name: "watches stay on a server that heartbeats left", Killer: "TestFailureMoves",
			Edits: []mutate.Edit{{File: "route.go", In: "Routes.move", Old: "t.cancel(ErrMoved)", New: "_ = t"}}},
		{Name: "a heartbeat ends later calls, too", Killer: "TestOneServer",
			Edits: []mutate.Edit{{File: "route.go", In: "Routes.suspect", Old: "i != answered.Server || t.start.Before(answered.start)",
				New: "true"}}},
		{Name: "one heartbeat ends calls again and again", Killer: "TestOneServer",
			Edits: []mutate.Edit{{File: "route.go", In: "Routes.suspect", Old: "t.judged, silent = true, true", New: "silent = true"}}},
		{Name: "calls outlive their backend", Killer: "TestLife",
			Edits: []mutate.Edit{{File: "route.go", In: "Routes.begin", Old: "t.cancel(context.Cause(r.life))", New: "_ = t"}}},
		{Name: "a heartbeat uses a connection that was long unused", Killer: "TestStale",
			Edits: []mutate.Edit{{File: "route.go", In: "Routes.begin", Old: "s.beats == 0 && r.beats-s.beat >= stale", New: "false"}}},
		{Name: "each heartbeat beside another one gets a new connection", Killer: "TestStale",
			Edits: []mutate.Edit{{File: "route.go", In: "Routes.begin", Old: "r.beats-s.beat >= stale", New: "true"}}},
		{Name: "both connections are silent, and both stay", Killer: "TestMute",
			Edits: []mutate.Edit{{File: "route.go", In: "Routes.begin", Old: " || r.mute(s, t.start)", New: ""}}},
		{Name: "the oldest heartbeat loses its connection", Killer: "TestMute",
			Edits: []mutate.Edit{{File: "route.go", In: "Routes.mute", Old: "return r.oldest().start.Before(mine.start)", New: "return true"}}},
		{Name: "a slow store loses its connections", Killer: "TestSlowIsNotMute",
			Edits: []mutate.Edit{{File: "route.go", In: "Routes.mute", Old: "limit.Sub(mine.start)/3", New: "limit.Sub(mine.start)/9"}}},
		{Name: "a connection on which a heartbeat is under way is left", Killer: "TestStale",
			Edits: []mutate.Edit{{File: "route.go", In: "Routes.begin", Old: "t.Stale = s.beats == 0 && ", New: "t.Stale = "}}},
	})
}

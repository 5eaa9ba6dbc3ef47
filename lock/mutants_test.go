package lock

import (
	"testing"
	"time"

	"github.com/tenure-go/tenure/internal/proof/mutate"
)

var mutantsFlag = mutate.Flag()

// TestMutants takes one rule out at a time, and expects the test that is named to fail.
func TestMutants(t *testing.T) {
	mutate.All(t, mutantsFlag, time.Minute, true, []mutate.Mutant{
		{Name: "the next one here has the lock before it was unlocked", Killer: "TestStop", Edits: []mutate.Edit{{
			File: "lock.go", In: "Locks.serve", Old: "		<-k.done\n", New: ""}}},
		{Name: "the last that came is first", Killer: "TestLock", Edits: []mutate.Edit{{
			File: "lock.go", In: "Locks.enter",
			Old: "n.waiting = append(n.waiting, w)", New: "n.waiting = append([]*waiter{w}, n.waiting...)"}}},
		{Name: "who gives up takes its turn along", Killer: "TestGivenUpInTurn", Edits: []mutate.Edit{{
			File: "lock.go", In: "Locks.leave", Old: "if turn = turn || len(w.turn) > 0; turn ||", New: "if turn = false; turn ||"}}},
		{Name: "who gives up last still contends", Killer: "TestGivenUp", Edits: []mutate.Edit{{
			File: "lock.go", In: "Locks.leave", Old: "			l.withdraw(shard)\n", New: ""}}},
		{Name: "a lock that nobody takes any more is kept", Killer: "TestGivenUpAndGranted", Edits: []mutate.Edit{{
			File: "lock.go", In: "Locks.leave",
			Old: "errors.Join(cause, k.Unlock(context.WithoutCancel(ctx)))", New: "errors.Join(cause, k.Err())"}}},
		{Name: "names are remembered", Killer: "TestNothingIsLeft", Edits: []mutate.Edit{{
			File: "lock.go", In: "Locks.forget", Old: "		delete(l.names, called)\n", New: ""}}},
		{Name: "names that were used are remembered", Killer: "TestNothingIsLeft", Edits: []mutate.Edit{{
			File: "lock.go", In: "Locks.contend", Old: "		clear(l.used)\n", New: ""}}},
		{Name: "TryLock waits", Killer: "TestTryLock", Edits: []mutate.Edit{{
			File: "lock.go", In: "Locks.lock",
			Old: "			if !try {\n				continue\n			}\n", New: "			if true {\n				continue\n			}\n"}}},
		{Name: "TryLock waits behind others here", Killer: "TestTryLock", Edits: []mutate.Edit{{
			File: "lock.go", In: "Locks.enter", Old: "} else if try {", New: "} else if false {"}}},
		{Name: "a process never leaves a lock to others", Killer: "TestFair", Edits: []mutate.Edit{{
			File: "lock.go", In: "Locks.contend", Old: "case now.Sub(s.since) < turn:", New: "case now.Sub(s.since) >= 0:"}}},
		{Name: "a lock that was lost is unlocked as if nothing had happened", Killer: "TestHolderDies", Edits: []mutate.Edit{{
			File: "lock.go", In: "Lock.Unlock",
			Old: "if lost := k.Err(); lost != nil {", New: "if lost := k.Err(); false && lost != nil {"}}},
		{Name: "who waits is not told of the end", Killer: "TestStop", Edits: []mutate.Edit{{
			File: "lock.go", In: "Locks.lock", Old: "case <-l.e.Done():", New: "case <-chan struct{}(nil):"}}},
	})
}

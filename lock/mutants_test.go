package lock

import (
	"testing"
	"time"

	"github.com/tenure-go/tenure/internal/proof/mutate"
)

var mutantsFlag = mutate.Flag()

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
			File: "lock.go", In: "Locks.leave", Old: "			_ = l.e.Withdraw(over(ctx), shard)\n", New: ""}}},
		{Name: "another call comes between giving up and withdrawing", Killer: "TestNobodyComesBetween", Edits: []mutate.Edit{{
			File: "lock.go", In: "Locks.leave", Old: "			_ = l.e.Withdraw(over(ctx), shard)\n",
			New: "			l.mu.Unlock()\n			_ = l.e.Withdraw(over(ctx), shard)\n			l.mu.Lock()\n"}}},
		{Name: "a call that was granted the lock as it gave up waits for the store", Killer: "TestGivenUpAndGranted", Edits: []mutate.Edit{{
			File: "lock.go", In: "Locks.leave", Old: "k.Unlock(over(ctx))", New: "k.Unlock(context.WithoutCancel(ctx))"}}},
		{Name: "Do does not say that its lock was lost", Killer: "TestDo", Edits: []mutate.Edit{{
			File: "lock.go", In: "Locks.Do", Old: "err = errors.Join(err, k.Unlock(ctx))", New: "_ = k.Unlock(ctx)"}}},
		{Name: "the context of Do's work outlives the lock", Killer: "TestDo", Edits: []mutate.Edit{{
			File: "lock.go", In: "Locks.Do", Old: "end(context.Cause(lease))", New: "_ = end"}}},
		{Name: "names that are not legal are cut", Killer: "TestName", Edits: []mutate.Edit{{
			File: "lock.go", In: "Name", Old: "_h.%s.%x\", begin, sum[:16]", New: "_h.%s.%x\", begin, sum[:0]"}}},
		{Name: "Close waits without a word", Killer: "TestCloseSays", Edits: []mutate.Edit{{
			File: "lock.go", In: "Locks.Close", Old: "len(names) > 0 {\n\t\tlog", New: "false {\n\t\tlog"}}},
		{Name: "a lock that nobody takes any more is kept", Killer: "TestGivenUpAndGranted", Edits: []mutate.Edit{{
			File: "lock.go", In: "Locks.leave",
			Old: "_ = k.Unlock(over(ctx))", New: "_ = k"}}},
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
			File: "lock.go", In: "Locks.lock", Old: "case <-l.e.Internal(seam.Key{}).Done():", New: "case <-chan struct{}(nil):"}}},
	})
}

package consul

import (
	"testing"
	"time"

	"github.com/tenure-go/tenure/internal/proof/mutate"
)

var mutantsFlag = mutate.Flag()

// TestMutants removes one rule at a time from the backend, and expects the named test to fail.
func TestMutants(t *testing.T) {
	mutate.All(t, mutantsFlag, 2*time.Minute, false, []mutate.Mutant{
		{Name: "E5: a right that is missing may be tried again", Killer: "TestRunTimePolicy", Edits: []mutate.Edit{{
			File: "errors.go", In: "operationError", Old: "driver.ErrRetry, driver.ErrDenied, adviceACL, o",
			New: "driver.ErrRetry, driver.ErrRetry, adviceACL, o"}}},
		{Name: "F1: GuardOps compares the shard's record only", Killer: "TestConformance/Fence/RaisedFloor", Edits: []mutate.Edit{{
			File: "consul.go", In: "Backend.GuardOps", Old: "for _, c := range conditions {", New: "for _, c := range conditions[1:] {"}}},
		{Name: "F1: GuardOps compares the identity only", Killer: "TestConformance/Fence/BegunBeforeTakeover", Edits: []mutate.Edit{{
			File: "consul.go", In: "Backend.GuardOps", Old: "for _, c := range conditions {", New: "for _, c := range conditions[:1] {"}}},
		{Name: "long values of a list stay in memory", Killer: "TestListing", Edits: []mutate.Edit{{
			File: "listing.go", In: "listing.add", Old: "pair.Cut(l.largest)", New: "_ = l.largest"}}},
		{Name: "lists are decoded when all has come", Killer: "TestListing", Edits: []mutate.Edit{{
			File: "listing.go", In: "lister.RoundTrip", Old: "|| into == nil ||", New: "|| into == nil || len(into.page.Pairs) == 0 ||"}}},
		{Name: "O1: the leader answers reads without asking its peers", Killer: "TestReadsNeedMajority/leader",
			Edits: []mutate.Edit{{
				File: "store.go", In: "call.query", Old: "RequireConsistent: true", New: "RequireConsistent: false"}}},
		{Name: "O1: any server answers reads", Killer: "TestReadsNeedMajority/follower", Edits: []mutate.Edit{{
			File: "store.go", In: "call.query", Old: "RequireConsistent: true", New: "AllowStale: true"}}},
		{Name: "E4: pings wait for slots like other reads", Killer: "TestPingsHaveTheirOwnSlots", Edits: []mutate.Edit{{
			File: "store.go", In: "store.Get", Old: "keys[0] == s.ping", New: "keys[0] == \"\""}}},
		{Name: "E4: after a request that ended others use what may be lost as well", Killer: "TestIdleSlots", Edits: []mutate.Edit{{
			File: "slots.go", In: "slotKind.give", Old: "k.idle = append(k.idle, l)", New: "k.idle = slices.Insert(k.idle, 0, l)"}}},
		{Name: "E4: a query waits on a connection that was lost", Killer: "TestLostConnection/followedAll", Edits: []mutate.Edit{{
			File: "index.go", Old: "waitTime = 5 * time.Second", New: "waitTime = time.Minute"}}},
		{Name: "E4: all connections of heartbeats that overlapped stay open", Killer: "TestLostConnection/slowedAll", Edits: []mutate.Edit{{
			File: "slots.go", In: "newSlots", Old: "keep = heartbeatsIdle", New: "keep = maxHeartbeats"}}},
	})
}

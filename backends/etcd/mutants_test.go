package etcd

import (
	"testing"
	"time"

	"github.com/tenure-go/tenure/internal/proof/mutate"
)

var mutantsFlag = mutate.Flag()

// TestMutants removes one rule at a time from the backend, and expects the named test to fail.
func TestMutants(t *testing.T) {
	mutate.All(t, mutantsFlag, 2*time.Minute, false, []mutate.Mutant{
		{Name: "E5: a right that is missing may be tried again", Killer: "TestConformance/Errors/RightTakenAway", Edits: []mutate.Edit{{
			File: "members.go", In: "finish", Old: "if denied(err) {", New: "if denied(err) && false {"}}},
		{Name: "O1: a watch's position is that of the header", Killer: "TestWatchPosition", Edits: []mutate.Edit{{
			File: "watch.go", In: "store.watch", Old: "\t\t\trev = changes[n].Rev\n", New: ""}}},
		{Name: "a watch that catches up gets all changes in one answer", Killer: "TestWatchInParts", Edits: []mutate.Edit{{
			File: "watch.go", In: "store.watch", Old: "Fragment: true,", New: "Fragment: false,"}}},
		{Name: "O1: a part of a transaction is delivered as a whole one", Killer: "TestWatchInParts", Edits: []mutate.Edit{{
			File: "watch.go", In: "store.watch", Old: "resp.Fragment && n > 0", New: "resp.Fragment && n < 0"}}},
		{Name: "O1: of several prefixes the one that is ahead counts", Killer: "TestWatchPosition",
			Edits: []mutate.Edit{{
				File: "watch.go", In: "store.watch", Old: "fn(slices.Min(reached), changes)", New: "fn(slices.Max(reached), changes)"}}},
		{Name: "I2: answers of another cluster count", Killer: "TestRestoredCluster", Edits: []mutate.Edit{{
			File: "store.go", In: "store.sameCluster", Old: "|| s.clusterID.Load() == id {", New: "|| s.clusterID.Load() != 0 {"}}},
		{Name: "I2: the tokens of another cluster go on", Killer: "TestRestoredCluster", Edits: []mutate.Edit{{
			File: "../kv/incarnation.go", In: "adopt", Old: "id.Base += next - newest", New: "id.Base += 0 * (next - newest)"}}},
		{Name: "I2: two restores from one state raise tokens alike", Killer: "TestRestoredCluster", Edits: []mutate.Edit{{
			File: "../kv/incarnation.go", In: "adopt", Old: "next := driver.Token(now.UnixMicro())",
			New: "next := newest + 1<<40 + driver.Token(0*now.UnixMicro())"}}},
		{Name: "F1: Guard compares no identity", Killer: "TestRestoredCluster", Edits: []mutate.Edit{{
			File: "etcd.go", In: "Backend.Guard", Old: "for _, c := range conditions {", New: "for _, c := range conditions[1:] {"}}},
		{Name: "F1: Guard compares no revision of the shard", Killer: "TestConformance/Fence/RefusedAfterNewLease", Edits: []mutate.Edit{{
			File: "etcd.go", In: "Backend.Guard", Old: "for _, c := range conditions {", New: "for _, c := range conditions[:1] {"}}},
		{Name: "F1: Guard compares no session", Killer: "TestConformance/Fence/AcceptedWhileCurrent", Edits: []mutate.Edit{{
			File: "etcd.go", In: "Backend.Guard",
			Old: "clientv3.GetPrefixRangeEnd(string(held))", New: "clientv3.GetPrefixRangeEnd(\"v\")"},
			{File: "etcd.go", In: "Backend.Guard", Old: "\">\", string(held))", New: "\">\", string(held[:1]))"}}},
		{Name: "I2: no cluster is on record", Killer: "TestRestoredCluster", Edits: []mutate.Edit{{
			File: "etcd.go", In: "open", Old: "strconv.FormatUint(st.clusterID.Load(), 16)", New: "strconv.FormatUint(1, 16)"}}},
		{Name: "I1: an identity that was overwritten goes unnoticed", Killer: "TestIdentityTampered/garbage",
			Edits: []mutate.Edit{{
				File: "../kv/backend.go", In: "Backend.apply", Old: "{{Key: b.keys.Identity(), Rev: b.idRev}}",
				New: "{{Key: b.keys.Identity(), Rev: Exists}}"}}},
		{Name: "E4: nothing finds a watch that was lost", Killer: "TestLostConnection/followedAll", Edits: []mutate.Edit{{
			File: "config.go", In: "withConfigDefaults", Old: "= 10*time.Second, 3*time.Second", New: "= time.Hour, 3*time.Second"}}},
		{Name: "E4: a connection waits to be tried again, though calls find no server", Killer: "TestNudge", Edits: []mutate.Edit{{
			File: "errors.go", In: "store.nudge", Old: "\t\t\tc.ResetConnectBackoff()\n", New: "\t\t\t_ = c\n"}}},
		{Name: "E4: a heartbeat uses a connection that was long unused", Killer: "TestLostConnection/slowedAll", Edits: []mutate.Edit{{
			File: "members.go", In: "store.begin", Old: "t.Stale && s.cluster == c", New: "t.Stale && s.cluster != c"}}},
	})
}

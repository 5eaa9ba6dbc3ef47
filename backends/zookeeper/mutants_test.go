package zookeeper

import (
	"testing"
	"time"

	"github.com/tenure-go/tenure/internal/proof/mutate"
)

var mutantsFlag = mutate.Flag()

// TestMutants removes one rule at a time from the backend, and expects the named test to fail.
func TestMutants(t *testing.T) {
	mutate.All(t, mutantsFlag, 2*time.Minute, false, []mutate.Mutant{
		{Name: "E5: the outcome of a write without a right is unknown", Killer: "TestConformance/Errors/RightTakenAway", Edits: []mutate.Edit{{
			File: "apply.go", In: "denied", Old: "errors.Is(err, zk.ErrNoAuth) || ", New: ""}}},
		{Name: "F1: GuardOps compares no version of the identity", Killer: "TestConformance/Fence/RaisedFloor", Edits: []mutate.Edit{{
			File: "zookeeper.go", In: "Backend.GuardOps",
			Old: "Path: id, Version: b.opened.stat.version}", New: "Path: id, Version: anyVersion}"}}},
		{Name: "F1: GuardOps compares no version of the shard", Killer: "TestConformance/Fence/BegunBeforeTakeover", Edits: []mutate.Edit{{
			File: "zookeeper.go", In: "Backend.GuardOps",
			Old: "Path: node, Version: m.version}", New: "Path: node, Version: anyVersion}"}}},
		{Name: "O1: a read does not wait until its server has caught up", Killer: "TestReadsNeedMajority/follower",
			Edits: []mutate.Edit{{
				File: "barrier.go", In: "link.caughtUp", Old: "\tif l.alone {\n\t\treturn nil\n",
				New: "\tif l != nil {\n\t\treturn nil\n"}}},
		{Name: "O1: the leader is believed to have caught up", Killer: "TestReadsNeedMajority/leader",
			Edits: []mutate.Edit{{
				File: "barrier.go", In: "link.raise", Old: "\tif l.alone {\n\t\t_, b.err =", New: "\tif l != nil {\n\t\t_, b.err ="}}},
		{Name: "I1: a range is dated without a barrier", Killer: "TestReadsNeedMajority/follower",
			Edits: []mutate.Edit{{
				File: "read.go", In: "store.Range", Old: "at, err := lk.catchUp(ctx, s.paths.root)",
				New: "at, err := kv.Rev(lk.wire.zxid.Load()), error(nil)"}}},
		{Name: "O1: a watch begins with its server's state", Killer: "TestReadsNeedMajority/follower",
			Edits: []mutate.Edit{{
				File: "follow.go", In: "follower.on", Old: "at, err := lk.catchUp(ctx, f.paths.root)",
				New: "at, err := kv.Rev(lk.wire.zxid.Load()), error(nil)"}}},
		{Name: "I1: the run-time user may write the identity", Killer: "TestRights", Edits: []mutate.Edit{{
			File: "store.go", In: "rights.of", Old: `part == "!id" && len(r.admins) > 0`, New: `part == "!id" && len(r.admins) < 0`}}},
		{Name: "E4: calls stay on a server that is silent", Killer: "TestStoppedMember", Edits: []mutate.Edit{{
			File: "connector.go", In: "connector.keep", Old: "\t\tif l.life.Err() == nil {\n\t\t\tlk.cut()\n\t\t}\n",
			New: "\t\tif l.life.Err() == nil {\n\t\t\t<-lk.down\n\t\t}\n"}}},
		{Name: "E4: a heartbeat waits behind the one before", Killer: "TestStoppedMember", Edits: []mutate.Edit{{
			File: "apply.go", In: "application.beat", Old: "a.beats[trip.Server].link(trip.Context)",
			New: "a.beats[a.routes.Current()].link(trip.Context)"}}},
		{Name: "E4: each link finds out by itself that a server is silent", Killer: "TestSilentServerIsLeft",
			Edits: []mutate.Edit{{File: "connector.go", In: "connector.keep",
				Old: "outcome = route.Failed", New: "outcome = route.Ended"}}},
		{Name: "E4: short calls never give a lost connection up", Killer: "TestLostLinks/ShortCalls",
			Edits: []mutate.Edit{{File: "link.go", In: "link.giveUp", Old: "time.Since(vain) > lostPatience",
				New: "time.Since(began) > lostPatience"}}},
		{Name: "E4: a quiet server of a link for watches is not asked", Killer: "TestQuietLinkIsAsked",
			Edits: []mutate.Edit{{File: "store.go", In: "newStore", Old: "s.reads.asks = true", New: ""}}},
		{Name: "pings are left out where nothing was sent for long", Killer: "TestPingsLeftOut", Edits: []mutate.Edit{{
			File: "wire.go", In: "observedConn.Write", Old: "now-sent < t.timeout.Load()/6 && ", New: ""}}},
		{Name: "pings are left out where nothing came", Killer: "TestPingsLeftOut", Edits: []mutate.Edit{{
			File: "wire.go", In: "observedConn.Write", Old: " && t.own.heard.Load() > sent", New: ""}}},
		{Name: "E4: each connection that was lost costs calls", Killer: "TestLostLinks/Call",
			Edits: []mutate.Edit{{File: "connector.go", In: "connector.keep", Old: "l.lost(*since)", New: "_ = *since"}}},
		{Name: "E4: a new link is answered, and the other silent links stay", Killer: "TestLostLinks/Heartbeat",
			Edits: []mutate.Edit{{File: "apply.go", In: "application.beat", Old: "a.doubt(trip.Since)", New: "_ = trip.Since"}}},
		{Name: "E4: a heartbeat uses a link that was long unused", Killer: "TestLostConnection/slowedAll",
			Edits: []mutate.Edit{{File: "apply.go", In: "application.beat", Old: "if trip.Stale {", New: "if false {"}}},
	})
}

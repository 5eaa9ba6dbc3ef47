package zookeeper

import (
	"flag"
	"testing"
	"time"

	"github.com/tenure-go/tenure/internal/mutate"
)

var mutantsFlag = flag.Bool("mutants", false, "take each rule out of the backend, and see a test fail")

// TestMutants takes one rule out of the backend at a time, and expects the test that
// is named to fail.
func TestMutants(t *testing.T) {
	if !*mutantsFlag {
		t.Skip("needs -mutants: it builds the package once for each mutant")
	}
	for _, m := range []struct {
		name, killer string
		edits        []mutate.Edit
	}{
		{"O1: a read does not wait until its server has caught up", "TestReadsNeedMajority/follower", []mutate.Edit{{
			File: "barrier.go", Old: "\tif l.alone {\n\t\treturn nil\n", New: "\tif l != nil {\n\t\treturn nil\n"}}},
		{"O1: the leader is believed to have caught up", "TestReadsNeedMajority/leader", []mutate.Edit{{
			File: "barrier.go", Old: "\tif l.alone {\n\t\t_, b.err =", New: "\tif l != nil {\n\t\t_, b.err ="}}},
		{"I1: a range is dated without a barrier", "TestReadsNeedMajority/follower", []mutate.Edit{{
			File: "read.go", Old: "at, err := lk.catchUp(ctx, s.paths.root)", New: "at, err := kv.Rev(lk.tap.zxid.Load()), error(nil)"}}},
		{"O1: a watch begins with what its server has", "TestReadsNeedMajority/follower", []mutate.Edit{{
			File: "follow.go", Old: "at, err := lk.catchUp(ctx, f.paths.root)", New: "at, err := kv.Rev(lk.tap.zxid.Load()), error(nil)"}}},
		{"E4: calls stay on a server that is silent", "TestStoppedMember", []mutate.Edit{{
			File: "line.go", Old: "\t\tif l.life.Err() == nil {\n\t\t\tlk.cut()\n\t\t}\n", New: "\t\tif l.life.Err() == nil {\n\t\t\t<-lk.down\n\t\t}\n"}}},
		{"E4: a heartbeat waits behind the one before", "TestStoppedMember", []mutate.Edit{{
			File: "apply.go", Old: "a.beats[trip.Server].link(trip.Context)", New: "a.beats[a.routes.Current()].link(trip.Context)"}}},
	} {
		t.Run(m.name, func(t *testing.T) {
			if out, failed := mutate.Run(t, mutate.Build(t, m.edits...), m.killer, 2*time.Minute); !failed {
				t.Errorf("survived %s:\n%s", m.killer, out)
			}
		})
	}
}

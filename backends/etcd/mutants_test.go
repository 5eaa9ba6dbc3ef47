package etcd

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
		{"O1: a watch's position is that of the header", "TestWatchPosition", []mutate.Edit{{
			File: "watch.go", Old: "\t\t\trev = changes[n].Rev\n", New: ""}}},
		{"O1: of several prefixes the one that is ahead counts", "TestWatchPosition", []mutate.Edit{{
			File: "watch.go", Old: "fn(slices.Min(reached), changes)", New: "fn(slices.Max(reached), changes)"}}},
		{"I2: answers of another cluster count", "TestRestoredCluster", []mutate.Edit{{
			File: "store.go", Old: "|| s.clusterID.Load() == id {", New: "|| s.clusterID.Load() != 0 {"}}},
		{"I2: the tokens of another cluster go on", "TestRestoredCluster", []mutate.Edit{{
			File: "../kv/incarnation.go", Old: "id.Base += leastLift + rand.N(randomLift);", New: "id.Base += 0 * rand.N(randomLift);"}}},
		{"I2: no cluster is on record", "TestRestoredCluster", []mutate.Edit{{
			File: "etcd.go", Old: "strconv.FormatUint(st.clusterID.Load(), 16)", New: "strconv.FormatUint(1, 16)"}}},
	} {
		t.Run(m.name, func(t *testing.T) {
			if out, failed := mutate.Run(t, mutate.Build(t, m.edits...), m.killer, 2*time.Minute); !failed {
				t.Errorf("survived %s:\n%s", m.killer, out)
			}
		})
	}
}

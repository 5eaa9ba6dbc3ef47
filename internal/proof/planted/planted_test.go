package planted_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/tenure-go/tenure/internal/proof/mutate"
	"github.com/tenure-go/tenure/internal/trace"
)

var mutantsFlag = mutate.Flag()

// wanted is the required number of faults, and wantedEach the number in the runner and in the
// adapters.
const (
	wanted     = 50
	wantedEach = 15
)

// TestPlantedInCode plants each fault in the code and runs members. Their traces alone must show
// the fault.
func TestPlantedInCode(t *testing.T) {
	if n := len(machine) + len(runner) + len(adapters); n < wanted || min(len(runner), len(adapters)) < wantedEach {
		t.Errorf("%d faults are listed, %d of the runner and %d of adapters", n, len(runner), len(adapters))
	}
	known := mutants(t, "internal/fsm", "core", "backends/memory")
	var names []string
	var all, listed [][]mutate.Edit
	for _, p := range []struct {
		place  string
		faults []fault
	}{{"machine", machine}, {"runner", runner}, {"adapters", adapters}} {
		for _, f := range p.faults {
			if f.edits == nil {
				f.edits = known[f.name]
			} else {
				listed = append(listed, f.edits)
			}
			if f.edits == nil {
				t.Errorf("there is no mutant %q", f.name)
			}
			if unseen[f.name] != "" {
				t.Errorf("%q is among unseen: take it out", f.name)
			}
			mutate.Fit(t, f.edits...)
			names, all = append(names, p.place+"/"+f.name), append(all, f.edits)
		}
	}
	mutate.Listed(t, "faults_test.go", listed...)
	for name := range unseen {
		if known[name] == nil {
			t.Errorf("there is no mutant %q", name)
		}
	}
	if t.Failed() || !mutantsFlag.On() {
		return
	}
	none, built := mutate.Together(t, all)
	t.Run("faults", func(t *testing.T) {
		for n, name := range names {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				find(t, built[n])
			})
		}
		t.Run("none", func(t *testing.T) { // nothing may be found
			t.Parallel()
			for _, seed := range plays(t, none, 1, parts[0]) {
				for _, b := range seed.Breaches {
					t.Errorf("%s: %s", b.Rule, b.Text)
				}
			}
		})
	})
}

// parts are the last seeds of parts in which members run with a fault, until their traces show it.
var parts = []int{2, 12, 60}

// find runs members with a fault, until their traces show it.
func find(t *testing.T, b mutate.Built) {
	first := 1
	for _, last := range parts {
		for i, r := range plays(t, b, first, last) {
			if len(r.Breaches) > 0 {
				t.Logf("found by %s, in seed %d: %.400s", r.Breaches[0].Rule, first+i, r.Breaches[0].Text)
				return
			}
		}
		first = last + 1
	}
	t.Errorf("all traces of %d seeds were accepted", parts[len(parts)-1])
}

// plays runs members with a fault, and returns the findings in their traces for each seed.
func plays(t *testing.T, b mutate.Built, first, last int) (seeds []*trace.Report) {
	t.Helper()
	dir := t.TempDir()
	var names []string
	for seed := first; seed <= last; seed++ {
		names = append(names, strconv.Itoa(seed))
	}
	cmd := b.Command(t.Context(), "-test.run", "^TestPlay$/^seed=("+strings.Join(names, "|")+")$", "-test.timeout=10m",
		"-traces", dir, "-plays", strconv.Itoa(last))
	// A panic or a failed scenario does not count. Only the traces may show the fault.
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Logf("the members: %v: %s", err, out[max(0, len(out)-1000):])
	}
	for seed := first; seed <= last; seed++ {
		if _, err := os.Stat(of(dir, uint64(seed))); err != nil {
			break
		}
		seeds = append(seeds, accepted(t, of(dir, uint64(seed))))
	}
	if len(seeds) == 0 {
		t.Fatal("nothing was played")
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	return seeds
}

// mutants returns the mutants in the files named mutants_test.go of packages, by their names, with
// paths for edits from here.
func mutants(t *testing.T, packages ...string) map[string][]mutate.Edit {
	t.Helper()
	all := make(map[string][]mutate.Edit)
	for _, pkg := range packages {
		dir := filepath.Join("..", "..", "..", filepath.FromSlash(pkg))
		found, err := mutate.Read(filepath.Join(dir, "mutants_test.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range found {
			for i := range m.Edits {
				m.Edits[i].File = filepath.Join(dir, m.Edits[i].File)
			}
			all[m.Name] = m.Edits
		}
	}
	return all
}

package mutate

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// A Mutant is broken code, and the test, such as "TestCommit/lost_reply", that has to fail
// because of it.
type Mutant struct {
	Name, Killer string
	Edits        []Edit
}

// All runs the killer of each mutant, which has to fail, or to hang, within the limit, after it
// passed without the mutant. It leaves out what the choice does not name; of those only the
// texts are looked for (see Fit). Parallel is for killers that need no server and no quiet
// machine; of the others one runs at a time.
func All(t *testing.T, choice *Choice, limit time.Duration, parallel bool, mutants []Mutant) {
	t.Helper()
	for _, m := range mutants {
		Fit(t, m.Edits...)
	}
	all := len(mutants)
	mutants = slices.DeleteFunc(slices.Clone(mutants), func(m Mutant) bool { return !choice.Touched(m.Killer, m.Edits) })
	if len(mutants) == 0 {
		return
	}
	t.Logf("%d of %d mutants", len(mutants), all)
	edits := make([][]Edit, len(mutants))
	killers := make([]string, len(mutants))
	for n, m := range mutants {
		edits[n], killers[n] = m.Edits, m.Killer
	}
	slices.Sort(killers)
	none, built := Together(t, edits)
	try := func(name string, b Built, killer string, want bool) {
		t.Run(name, func(t *testing.T) {
			if parallel {
				t.Parallel()
			}
			switch out, failed := b.Run(t, killer, limit); {
			case failed && !want:
				t.Errorf("%s fails without a mutant:\n%s", killer, out)
			case !failed && want:
				t.Errorf("survived %s:\n%s", killer, out)
			}
		})
	}
	for _, killer := range slices.Compact(killers) {
		try("none/"+killer, none, killer, false)
	}
	for n, m := range mutants {
		try(m.Name, built[n], m.Killer, true)
	}
}

// Run runs one test of the binary, such as "TestCommit/lost_reply", and reports
// whether it failed. A test that hangs ends at the limit, and that is a failure
// too. A test that does not exist, or is skipped, fails t.
func (b Built) Run(t testing.TB, test string, limit time.Duration) (out string, failed bool) {
	t.Helper()
	pattern := "^" + strings.ReplaceAll(test, "/", "$/^") + "$"
	text, err := b.Command(t.Context(), "-test.run", pattern, "-test.v", "-test.timeout", limit.String()).CombinedOutput()
	out = string(text)
	if !strings.Contains(out, "=== RUN   "+test+"\n") {
		t.Fatalf("there is no test %s: %v\n%s", test, err, tail(out))
	}
	if err == nil && !strings.Contains(out, "--- PASS: "+test+" (") {
		t.Fatalf("%s was skipped:\n%s", test, tail(out))
	}
	return tail(out), err != nil
}

// tail is as much as is worth showing.
func tail(out string) string { return out[max(0, len(out)-4000):] }

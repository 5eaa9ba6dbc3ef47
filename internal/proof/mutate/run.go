package mutate

import (
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// A Mutant is broken code, and the test, such as "TestCommit/lost_reply", that has to fail
// because of it.
type Mutant struct {
	Name, Killer string
	Edits        []Edit
}

// All builds each mutant and runs its killer, which has to fail, or to hang, within the
// limit, after it passed without the mutant. It leaves out what the choice does not name;
// of those only the texts are looked for (see Fit). Parallel is for killers that need no server and no quiet
// machine; of the others one runs at a time, while the next mutant is built.
func All(t *testing.T, choice *Choice, limit time.Duration, parallel bool, mutants []Mutant) {
	t.Helper()
	for _, m := range mutants {
		Fit(t, m.Edits...)
	}
	if !choice.on {
		return
	}
	all := len(mutants)
	mutants = slices.DeleteFunc(slices.Clone(mutants), func(m Mutant) bool { return !choice.Touched(m.Killer, m.Edits) })
	t.Logf("%d of %d mutants", len(mutants), all)
	if len(mutants) == 0 {
		return
	}
	var one sync.Mutex
	kill := func(t *testing.T, binary, killer string) (string, bool) {
		if !parallel {
			one.Lock()
			defer one.Unlock()
		}
		return Run(t, binary, killer, limit)
	}
	t.Run("none", func(t *testing.T) {
		t.Parallel()
		binary := Build(t)
		var killers []string
		for _, m := range mutants {
			killers = append(killers, m.Killer)
		}
		slices.Sort(killers)
		for _, killer := range slices.Compact(killers) {
			if out, failed := kill(t, binary, killer); failed {
				t.Errorf("%s fails without a mutant:\n%s", killer, out)
			}
		}
	})
	for _, m := range mutants {
		t.Run(m.Name, func(t *testing.T) {
			t.Parallel()
			if out, failed := kill(t, Build(t, m.Edits...), m.Killer); !failed {
				t.Errorf("survived %s:\n%s", m.Killer, out)
			}
		})
	}
}

// Run runs one test of a binary, such as "TestCommit/lost_reply", and reports
// whether it failed. A test that hangs ends at the limit, and that is a failure
// too. A test that does not exist, or is skipped, fails t.
func Run(t testing.TB, binary, test string, limit time.Duration) (out string, failed bool) {
	t.Helper()
	pattern := "^" + strings.ReplaceAll(test, "/", "$/^") + "$"
	b, err := exec.CommandContext(t.Context(), binary, "-test.run", pattern, "-test.v", "-test.timeout",
		limit.String()).CombinedOutput()
	out = string(b)
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

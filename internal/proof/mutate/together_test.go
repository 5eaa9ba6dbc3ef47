package mutate_test

import (
	"testing"
	"time"

	"github.com/tenure-go/tenure/internal/proof/mutate"
)

// thing has code that mutants of Together change: methods, results, and unused names.
type thing struct{ n int }

func (x *thing) add(_ int, more ...int) { x.n += len(more) }

func (x thing) twice() (n int, ok bool) { return 2 * x.n, true }

func (thing) any() bool { return true }

const wanted = 4

var skewed bool

func (*thing) recovers() (recovered bool) {
	x := new(thing)
	defer x.mend(&recovered)
	panic("mended")
}

func (x *thing) mend(recovered *bool) { *recovered = recover() != nil }

// TestChosen passes unless the process is a mutant.
func TestChosen(t *testing.T) {
	x := new(thing)
	x.add(0, 1, 2)
	if n, ok := x.twice(); n != wanted || !ok || !x.any() || !x.recovers() || skewed || !right() {
		t.Errorf("%d, %v", n, ok)
	}
}

// Mutants that change only function bodies share a binary, and each process runs one of them. A
// mutant that changes other code is only in a separate binary.
func TestTogether(t *testing.T) {
	t.Parallel()
	const file = "together_test.go"
	none, all := mutate.Together(t, [][]mutate.Edit{
		{{File: file, Old: "x.n +" + "= len(more)", New: "x.n = 3 * len(more)"}},
		{{File: file, Old: "return 2 " + "* x.n, true", New: "return 2 * x.n, false"}},
		{{File: file, Old: "x.n +" + "= len(more)", New: "x.n += 1 + len(more)"},
			{File: "mutate_test.go", Old: "func right() bool" + " { return true }", New: "func right() bool { return os.Getpid() == 0 }"}},
		{{File: file, Old: "x.n +" + "= len(more)", New: "x.n += 1 * len(more)"}},
		{{File: file, Old: "const wanted " + "= 4", New: "const wanted = 5"}},
		{{File: file, Old: "func (thing) " + "any() bool { return true }", New: "func (thing) any() bool { return false }"}},
		{{File: file, Old: "recover() " + "!= nil", New: "nil != recover()"}},
		{{File: file, Old: "// TestChosen " + "passes", New: "func init() { skewed = true }\n\n// TestChosen " + "passes"}},
	})
	all = append(all, none)
	for n, want := range []bool{true, true, true, false, true, true, false, true, false} {
		if out, failed, err := all[n].Run(t.Context(), "TestChosen", time.Minute); failed != want || err != nil {
			t.Errorf("mutant %d: failed is %v, want %v: %v\n%s", n, failed, want, err, out)
		}
	}
	if all[0] == all[1] {
		t.Error("two mutants are one")
	}
}

package mutate_test

import (
	"reflect"
	"strings"
	"testing"

	"github.com/tenure-go/tenure/internal/proof/mutate"
)

func TestRead(t *testing.T) {
	t.Parallel()
	edits := []mutate.Edit{{File: "a.go", In: "T.f", Old: "x\n", New: ""}, {File: "b.sql", Old: "yz"}}
	literal := `[]mutate.Edit{{File: "a.go", In: "T.f", Old: "x\n", New: ""}, {File: sql, Old: "y" + "z"}}`
	for text, want := range map[string]mutate.Mutant{
		`var all = []mutate.Mutant{{Name: "n", Killer: k, Edits: ` + literal + `}}`: {Name: "n", Killer: "TestK/x", Edits: edits},
		`var all = []own{{"n", "ignored", "S1 S2", ` + literal + `}}`:               {Name: "n", Killer: "S1 S2", Edits: edits},
		`func f() { g([]own{{"n", ` + literal + `}}) }`:                             {Name: "n", Edits: edits},
	} {
		src := "package p\nconst sql, k = \"b.sql\", \"TestK/\" + `x`\n" + text
		found, err := mutate.ReadSource("p_test.go", []byte(src))
		if err != nil || !reflect.DeepEqual(found, []mutate.Found{{Mutant: want, At: "p_test.go:3"}}) {
			t.Errorf("%s: got %+v, %v; want %+v", text, found, err, want)
		}
	}
}

// An edit that Read cannot read is an error, because it would not be checked.
func TestReadMissesNothing(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`var all = []own{{"n", []mutate.Edit{{File: "a.go", Old: text()}}}}`:    "not a constant",
		`var all = []own{{"n", []mutate.Edit{{File: unknown, Old: "x"}}}}`:      "not a constant",
		`var all = []own{{"n", []mutate.Edit{{"a.go", "", "x", "y"}}}}`:         "name its fields",
		`var all = []own{{"n", []mutate.Edit{one}}}`:                            "no literal",
		`var one = mutate.Edit{File: "a.go", Old: "x"}`:                         "no mutant's list",
		`var all = []mutate.Edit{{File: "a.go", Old: "x"}}`:                     "no mutant's list",
		`var all = append(others, mutate.Edit{File: "a.go", Old: "x"})`:         "no mutant's list",
		`var all = map[string][]mutate.Edit{"n": {{File: "a.go", Old: "x"}}}`:   "no mutant's list",
		`var all = [][]mutate.Edit{{{File: "a.go", Old: "x"}}}`:                 "no mutant's list",
		`var all = []own{{"n", [][]mutate.Edit{{{File: "a.go", Old: "x"}}}}}`:   "several mutants",
		`var all = []own{{name(), []mutate.Edit{{File: "a.go", Old: "x"}}}}`:    "not a constant",
		`var all = []own{{"n", []mutate.Edit{{File: "a.go", Old: "x"}}}} ; nil`: "expected",
	} {
		_, err := mutate.ReadSource("p_test.go", []byte("package p\n"+text))
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "p_test.go:2") {
			t.Errorf("%s: got %v, want %q", text, err, want)
		}
	}
}

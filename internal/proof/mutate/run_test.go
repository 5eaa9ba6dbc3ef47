package mutate_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tenure-go/tenure/internal/proof/mutate"
)

var mutantsFlag = mutate.Flag()

// planted are the mutants of the package that TestAll makes.
var planted = []mutate.Mutant{
	{Name: "one", Killer: "TestOne", Edits: []mutate.Edit{{File: "a.go", In: "one", Old: "1", New: "2"}}},
	{Name: "more", Killer: "TestOne", Edits: []mutate.Edit{{File: "a.go", Old: "var more = 0", New: "var more = 1"}}},
	{Name: "hangs", Killer: "TestOne", Edits: []mutate.Edit{{File: "a.go", In: "one", Old: "return 1", New: "select {}"}}},
	{Name: "survives", Killer: "TestOne", Edits: []mutate.Edit{{File: "a.go", In: "two", Old: "2", New: "3"}}},
	{Name: "unsound", Killer: "TestFails", Edits: []mutate.Edit{{File: "a.go", In: "two", Old: "2", New: "3"}}},
	{Name: "skipped", Killer: "TestSkips", Edits: []mutate.Edit{{File: "a.go", In: "two", Old: "2", New: "3"}}},
	{Name: "no killer", Killer: "TestNone", Edits: []mutate.Edit{{File: "a.go", In: "two", Old: "2", New: "3"}}},
}

// TestPlantedMutants is the test that TestAll runs in that package's folder.
func TestPlantedMutants(t *testing.T) {
	if _, err := os.Stat("mutants_test.go"); err == nil {
		mutate.All(t, mutantsFlag, 2*time.Second, true, planted)
	}
}

// All fails if a mutant survives, if a killer proves nothing, or if Read does not find the list.
// When the time is over, All begins no more mutants.
func TestAll(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var list strings.Builder
	fmt.Fprintln(&list, "package a\n\nvar mutants = []mutate.Mutant{")
	for _, m := range planted {
		fmt.Fprintf(&list, "\t{Name: %q, Killer: %q, Edits: []mutate.Edit{{File: %q, In: %q, Old: %q, New: %q}}},\n",
			m.Name, m.Killer, m.Edits[0].File, m.Edits[0].In, m.Edits[0].Old, m.Edits[0].New)
	}
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("go.mod", "module a\n\ngo 1.26\n")
	write("a.go", "package a\n\nvar more = 0\n\nfunc one() int { return 1 }\n\nfunc two() int { return 2 }\n")
	write("a_test.go", "package a\n\nimport \"testing\"\n\n"+
		"func TestOne(t *testing.T) { if one()+more != 1 { t.Error(one()) } }\n\n"+
		"func TestFails(t *testing.T) { t.Error() }\n\nfunc TestSkips(t *testing.T) { t.Skip(\"none\") }\n")
	// The file is not compiled.
	write("mutants_test.go", "//go:build never\n\n"+list.String()+"}\n")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	past := fmt.Sprint("-mutants.until=", time.Now().Add(-time.Second).Unix())
	soon := fmt.Sprint("-mutants.until=", time.Now().Add(time.Hour).Unix())
	for _, tt := range []struct {
		flags string
		fails bool
		wants []string
	}{
		{"-mutants=false", false, []string{"--- PASS"}},
		{"-mutants=2,0,1 " + soon, false, []string{"3 mutants died, of 3 chosen and 7 in all"}},
		{"-mutants", true, []string{
			"survived TestOne", "TestFails fails without a mutant", "TestSkips was skipped", "there is no test TestNone",
			"3 mutants died, of 7 chosen",
		}},
		{"-mutants=7", true, []string{"no mutant 7"}},
		{"-mutants=3 " + past, false, []string{"0 mutants died, of 1 chosen and 7 in all"}},
		{"-mutants=3,0 -mutants.for=1ns", false, []string{"0 mutants died, of 2 chosen and 7 in all"}},
	} {
		args := append([]string{"-test.run=^TestPlantedMutants$", "-test.v"}, strings.Fields(tt.flags)...)
		cmd := exec.CommandContext(t.Context(), self, args...)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		for _, want := range tt.wants {
			if (err != nil) != tt.fails || !strings.Contains(string(out), want) {
				t.Errorf("%s: got %v, want %q:\n%s", tt.flags, err, want, out)
			}
		}
	}
	write("mutants_test.go", "//go:build never\n\n"+strings.Replace(list.String(), "{Name: \"one\"", "//", 1)+"}\n")
	cmd := exec.CommandContext(t.Context(), self, "-test.run=^TestPlantedMutants$")
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "7 mutants, of which Read finds 6") {
		t.Errorf("a mutant that Read does not find passes: %v\n%s", err, out)
	}
}

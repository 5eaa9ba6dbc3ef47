package archtest

import (
	"io/fs"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tenure-go/tenure/internal/proof/mutate"
)

// TestMutantsFit checks, without compiling, that the place of each mutant's edits exists in the
// code. In the packages that compile the mutants, mutate.Listed checks that this test finds all
// mutants.
func TestMutantsFit(t *testing.T) {
	t.Parallel()
	root := filepath.Join("..", "..", "..")
	mutants := 0
	err := filepath.WalkDir(root, func(file string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (file == filepath.Join(root, "internal", "proof", "mutate") || file != root && d.Name()[0] == '.'):
			return fs.SkipDir // its tests make their own edits
		case !strings.HasSuffix(file, "_test.go"):
			return nil
		}
		found, err := mutate.Read(file)
		if err != nil {
			t.Error(err)
		}
		mutants += len(found)
		for _, m := range found {
			if err := mutate.Check(filepath.Dir(file), m.Edits...); err != nil {
				t.Errorf("%s: the mutant %q has lost its place: %v", strings.TrimPrefix(m.At, root+"/"), m.Name, err)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if mutants == 0 {
		t.Error("there are no mutants")
	}
	t.Logf("%d mutants", mutants)
}

package mutate

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Edit replaces a text that occurs exactly once in a file. File is a path from the
// folder of the test.
type Edit struct{ File, Old, New string }

// Build returns the path of the test binary of the package in the working folder,
// built with the edits. An edit whose text does not occur exactly once fails t: the
// code has changed, and the mutant must follow. The race detector is off.
func Build(t testing.TB, edits ...Edit) string {
	t.Helper()
	dir := t.TempDir()
	return build(t, dir, apply(t, dir, edits))
}

// Fit fails t unless the text of each edit is in its file once, after the edits before it, so
// that a change which leaves a mutant without its place is seen at once and not when mutants
// are next built.
func Fit(t testing.TB, edits ...Edit) {
	t.Helper()
	apply(t, t.TempDir(), edits)
}

// apply writes the changed files below dir, and returns which replaces which.
func apply(t testing.TB, dir string, edits []Edit) map[string]string {
	t.Helper()
	replace := map[string]string{}
	for _, e := range edits {
		path, err := filepath.Abs(e.File)
		if err != nil {
			t.Fatal(err)
		}
		from, changed := replace[path]
		if !changed {
			from = path
			replace[path] = filepath.Join(dir, strings.ReplaceAll(filepath.ToSlash(e.File), "/", "_"))
		}
		b, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(string(b), e.Old); n != 1 {
			t.Fatalf("%s has the text %d times, want once: %q", e.File, n, e.Old)
		}
		if err := os.WriteFile(replace[path], []byte(strings.Replace(string(b), e.Old, e.New, 1)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return replace
}

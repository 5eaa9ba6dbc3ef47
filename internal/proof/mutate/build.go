package mutate

import (
	"context"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Edit replaces a text that occurs exactly once in a function. File is a path relative to the
// test's folder. In is the function's name, such as "Backend.Commit". If In is empty, the text must
// occur exactly once in the whole file.
type Edit struct{ File, In, Old, New string }

// change returns a file's text after the edit.
func (e Edit) change(text string) (string, error) {
	from, to, place := 0, len(text), e.File
	if e.In != "" {
		place += ": " + e.In
		fset := token.NewFileSet()
		f, err := parser.ParseFile(fset, e.File, text, parser.SkipObjectResolution)
		if err != nil {
			return "", err
		}
		to = -1
		for _, d := range f.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && nameOf(fn) == e.In {
				from, to = fset.Position(fn.Pos()).Offset, fset.Position(fn.End()).Offset
			}
		}
		if to < 0 {
			return "", fmt.Errorf("%s has no function %s", e.File, e.In)
		}
	}
	if n := strings.Count(text[from:to], e.Old); n != 1 {
		return "", fmt.Errorf("%s has the text %d times, want once: %q", place, n, e.Old)
	}
	return text[:from] + strings.Replace(text[from:to], e.Old, e.New, 1) + text[to:], nil
}

// Check returns an error if an edit cannot be applied after the earlier edits. The edits' paths are
// relative to dir.
func Check(dir string, edits ...Edit) error {
	_, err := changed(dir, edits)
	return err
}

// changed returns the texts of the edited files, by path.
func changed(dir string, edits []Edit) (map[string]string, error) {
	texts := make(map[string]string)
	for _, e := range edits {
		path, err := filepath.Abs(filepath.Join(dir, e.File))
		if err != nil {
			return nil, err
		}
		text, ok := texts[path]
		if !ok {
			b, err := os.ReadFile(path)
			if err != nil {
				return nil, err
			}
			text = string(b)
		}
		if texts[path], err = e.change(text); err != nil {
			return nil, err
		}
	}
	return texts, nil
}

// Build builds the test binary of the package in the working folder with the edits, and returns its
// path. If an edit can no longer be applied because the code has changed, Build fails t. The author
// of the change must then update the mutant. The race detector is off.
func Build(t testing.TB, edits ...Edit) string {
	t.Helper()
	path, err := buildEdited(t.Context(), t.TempDir(), edits)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func buildEdited(ctx context.Context, dir string, edits []Edit) (string, error) {
	texts, err := changed(".", edits)
	if err != nil {
		return "", err
	}
	replace := make(map[string]string)
	for path, text := range texts {
		with := filepath.Join(dir, fmt.Sprint(len(replace), "_", filepath.Base(path)))
		if err := write(with, []byte(text)); err != nil {
			return "", err
		}
		replace[path] = with
	}
	return build(ctx, dir, replace)
}

// Fit fails t if an edit cannot be applied after the earlier edits.
func Fit(t testing.TB, edits ...Edit) {
	t.Helper()
	if err := Check(".", edits...); err != nil {
		t.Fatal(err)
	}
}

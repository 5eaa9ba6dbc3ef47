package doctest

import (
	"go/format"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// marker is the place of the block in a wrapper.
const marker = "/* the block */"

// module creates a module for programs that use this repository, in its current state, as a user's
// module would.
func module(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	tree, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	mod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	sum, err := os.ReadFile(filepath.Join(root, "go.sum"))
	if err != nil {
		t.Fatal(err)
	}
	const path = "github.com/tenure-go/tenure"
	text := strings.Replace(string(mod), "module "+path, "module pages", 1) +
		"\nrequire " + path + " v0.0.0\n\nreplace " + path + " => " + tree + "\n"
	write(t, filepath.Join(dir, "go.mod"), text)
	write(t, filepath.Join(dir, "go.sum"), string(sum))
	copyBackend(t, filepath.Join(root, "backends", "memory"), filepath.Join(dir, "mystore"))
	return dir
}

// copyBackend copies the example backend to a reader's module, where it builds only if it uses
// exported names only. It does not copy the example's tests, which use this repository's tests.
func copyBackend(t *testing.T, from, to string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(from, "*.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("the example in %s: %d files, %v", from, len(files), err)
	}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(to, filepath.Base(file)), string(text))
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func goTool(t *testing.T, dir string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOFLAGS=-mod=mod", "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// formatted fails the test if the block is not in gofmt's form. Parts of a program may differ in
// blanks within a line, which depend on the lines around them.
func formatted(t *testing.T, b *block) {
	t.Helper()
	got, err := format.Source([]byte(b.text))
	if err != nil {
		t.Errorf("%s: %v", b, err)
		return
	}
	squeeze := func(s string) string { return strings.Join(strings.Fields(s), " ") }
	indents := func(s string) (n int) {
		for line := range strings.Lines(s) {
			n += len(line) - len(strings.TrimLeft(line, "\t"))
		}
		return n
	}
	if b.isProgram() && string(got) == b.text {
		return
	}
	if b.isProgram() || squeeze(string(got)) != squeeze(b.text) || indents(string(got)) != indents(b.text) {
		t.Errorf("%s: gofmt writes it differently:\n%s", b, got)
	}
}

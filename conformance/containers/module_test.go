package containers

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const library = "github.com/tenure-go/tenure"

// TestAddsNothing shows that this package adds no module to an application that imports the library
// but not this package. It builds the application with the library, and with a copy that lacks this
// package and its dependencies. Then it compares the modules in go.mod, in go.sum after "go mod
// tidy", and in the build. The control imports the package.
func TestAddsNothing(t *testing.T) {
	t.Parallel()
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	former := formerly(t, root)
	rest := []string{
		"core", "observe/tenurehttp", "config", "follower", "sharding", "conformance", "tenuretest",
		"backends/memory", "backends/etcd", "backends/consul", "backends/zookeeper", "backends/redis",
		"backends/sql/sqlite", "backends/sql/postgres", "backends/sql/mysql",
	}
	before, after := newApp(t, former, rest...), newApp(t, root, rest...)
	for what, texts := range map[string][2]string{
		"go.mod": {before.mod, after.mod}, "go.sum": {before.sum, after.sum}, "what is built": {before.built, after.built},
	} {
		if before, after := modules(texts[0]), modules(texts[1]); !slices.Equal(before, after) {
			t.Errorf("%s of an application without the package had\n%q\nand has\n%q", what, before, after)
		}
	}
	if !strings.Contains(after.built, "\ngithub.com/jackc/pgx/v5\n") {
		t.Errorf("the application is not built from the client of a backend:\n%s", after.built)
	}
	control := newApp(t, root, "conformance/containers")
	for what, text := range map[string]string{"go.mod": control.mod, "go.sum": control.sum, "what is built": control.built} {
		if !strings.Contains(text, "github.com/testcontainers/testcontainers-go") {
			t.Errorf("%s of an application with the package lacks testcontainers-go:\n%s", what, text)
		}
	}
}

// modules returns the first words of lines. In go.mod, go.sum and lists of modules, these words are
// the modules without their versions. Tidying the copy keeps versions that were raised.
func modules(text string) []string {
	var out []string
	for line := range strings.Lines(text) {
		if words := strings.Fields(line); len(words) > 0 {
			out = append(out, words[0])
		}
	}
	return slices.Compact(slices.Sorted(slices.Values(out)))
}

// formerly creates a copy of the library without this package, without the command that runs
// servers for this package's tests, and without the modules that only these two need.
func formerly(t *testing.T, root string) string {
	t.Helper()
	dir := t.TempDir()
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		switch {
		case slices.Contains([]string{
			"conformance/containers", "bench", "docs", "examples", "tools",
		}, filepath.ToSlash(rel)),
			strings.HasPrefix(entry.Name(), ".") && rel != ".":
			if entry.IsDir() {
				return fs.SkipDir
			}
			return nil
		case entry.IsDir():
			return os.MkdirAll(filepath.Join(dir, rel), 0o700)
		case !entry.Type().IsRegular():
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(dir, rel), text, 0o600)
	})
	if err != nil {
		t.Fatal(err)
	}
	goCommand(t, dir, "mod", "tidy")
	if text := read(t, dir, "go.mod"); strings.Contains(text, "testcontainers") {
		t.Fatalf("something else needs testcontainers-go, too:\n%s", text)
	}
	return dir
}

// app contains the go command's results for an application: its go.mod, its go.sum, and the modules
// of its build, one on each line.
type app struct{ mod, sum, built string }

// newApp creates a module that imports packages of the library at root, and tidies the module.
func newApp(t *testing.T, root string, packages ...string) app {
	t.Helper()
	dir := t.TempDir()
	var program strings.Builder
	program.WriteString("package main\n\nimport (\n")
	for _, p := range packages {
		fmt.Fprintf(&program, "\t_ %q\n", library+"/"+p)
	}
	program.WriteString(")\n\nfunc main() {}\n")
	version := strings.TrimSpace(goCommand(t, root, "list", "-m", "-f", "{{.GoVersion}}"))
	for name, text := range map[string]string{
		"main.go": program.String(),
		"go.sum":  read(t, root, "go.sum"), // tidy removes unneeded lines
		"go.mod": fmt.Sprintf("module example.com/app\n\ngo %s\n\nrequire %s v0.0.0\n\nreplace %s => %s\n", version, library,
			library, root),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	goCommand(t, dir, "mod", "tidy")
	built := strings.Fields(goCommand(t, dir, "list", "-deps", "-f", "{{with .Module}}{{.Path}}{{end}}", "."))
	slices.Sort(built)
	return app{
		mod:   strings.ReplaceAll(read(t, dir, "go.mod"), root, "ROOT"),
		sum:   read(t, dir, "go.sum"),
		built: strings.Join(slices.Compact(built), "\n"),
	}
}

func read(t *testing.T, dir, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func goCommand(t *testing.T, dir string, args ...string) string {
	t.Helper()
	c := exec.CommandContext(t.Context(), "go", args...)
	c.Dir = dir
	c.Env = append(os.Environ(), "GOFLAGS=-mod=mod", "GOWORK=off", "PWD="+dir)
	out, err := c.Output()
	if err != nil {
		var text []byte
		if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
			text = exit.Stderr
		}
		t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, text)
	}
	return string(out)
}

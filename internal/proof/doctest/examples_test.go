package doctest

import (
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"
)

// notCallable returns packages whose functions an example cannot call, because the example would
// have no output.
func notCallable() map[string]string {
	return map[string]string{
		"conformance/containers": "Run takes a *testing.T, and a Docker engine",
		"tenuretest":             "Run takes a *testing.T; a test plays the example's scenario",
	}
}

// TestExamples: each package that exports something has an example, and each example has an output.
// Without an output, the go command does not run the example.
func TestExamples(t *testing.T) {
	t.Parallel()
	packages := make(map[string]bool)
	for line := range exportedNow(t) {
		pkg, _, _ := strings.Cut(line, ": ")
		packages[pkg] = true
	}
	if len(packages) < 20 {
		t.Errorf("%d packages export something", len(packages))
	}
	for pkg := range packages {
		run := 0
		_, not := notCallable()[pkg]
		for _, e := range doc.Examples(testFiles(t, pkg)...) {
			switch {
			case e.Output != "" || e.EmptyOutput:
				run++
			case !not:
				t.Errorf("%s: Example%s has no output", pkg, e.Name)
			}
		}
		switch {
		case run > 0 && not:
			t.Errorf("%s has an example that runs: take it from notCallable", pkg)
		case run == 0 && !not:
			t.Errorf("%s has no example: write one that newcomers copy", pkg)
		}
	}
	for pkg := range notCallable() {
		if !packages[pkg] {
			t.Errorf("%s exports nothing: take it from notCallable", pkg)
		}
	}
}

func testFiles(t *testing.T, pkg string) []*ast.File {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(root, filepath.FromSlash(pkg), "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	var files []*ast.File
	for _, path := range paths {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
	}
	return files
}

package archtest

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
)

// repository is this repository, loaded once.
var repository = sync.OnceValues(func() (*tree, error) { return load(filepath.Join("..", "..", "..")) })

func check(t *tree) []finding {
	out := checkImports(t, rows)
	out = append(out, checkFloors(t, floors)...)
	out = append(out, checkForbidden(t, places)...)
	out = append(out, checkBounds(t)...)
	return append(out, checkVars(t, places)...)
}

func TestRepository(t *testing.T) {
	t.Parallel()
	src, err := repository()
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(src.pkgs, func(p *pkg) bool { return p.dir == "core/driver" }) {
		t.Fatalf("core/driver is not among the %d packages that were read", len(src.pkgs))
	}
	for _, f := range check(src) {
		t.Error(f)
	}
	for _, r := range idle(src, rows) {
		t.Errorf("the row of %s in the import table is for no package: remove it", r.pkg)
	}
}

// TestElapsed checks the tests against the rule of checkElapsed, and the callers of AtMost against
// their list.
func TestElapsed(t *testing.T) {
	t.Parallel()
	src, err := repository()
	if err != nil {
		t.Fatal(err)
	}
	found, callers := checkElapsed(src)
	unused := maps.Clone(paced)
	for _, f := range found {
		if paced[f.in] == "" {
			t.Error(f)
		}
		delete(unused, f.in)
	}
	for in := range unused {
		t.Errorf("%s compares no elapsed time: remove it from the list", in)
	}
	if !slices.Equal(callers, figures) {
		t.Errorf("functions that judge an elapsed time with a gauge are\n%s\nwhere figures lists\n%s",
			strings.Join(callers, "\n"), strings.Join(figures, "\n"))
	}
}

// TestIdle finds rows for missing packages, and rows that never apply because of an earlier row.
func TestIdle(t *testing.T) {
	t.Parallel()
	src := &tree{pkgs: []*pkg{{dir: "core"}, {dir: "cmd/demo/sub"}, {dir: "new"}}}
	var got []string
	for _, r := range idle(src, []row{{pkg: "core"}, {pkg: "core/fsm"}, {pkg: "cmd/demo/..."}, {pkg: "cmd/..."}}) {
		got = append(got, r.pkg)
	}
	if want := []string{"core/fsm", "cmd/..."}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestChecks runs the checks on a module in which every rule is broken. The findings must be
// exactly those in the module's want comments.
func TestChecks(t *testing.T) {
	t.Parallel()
	root := filepath.Join("testdata", "module")
	src, err := load(root)
	if err != nil {
		t.Fatal(err)
	}
	compare(t, src, root, check(src))
}

// TestElapsedRule runs the rule of checkElapsed on tests that break it and on tests that do not.
func TestElapsedRule(t *testing.T) {
	t.Parallel()
	root := filepath.Join("testdata", "elapsed")
	src, err := load(root)
	if err != nil {
		t.Fatal(err)
	}
	found, callers := checkElapsed(src)
	compare(t, src, root, found)
	if want := []string{". TestFigure"}; !slices.Equal(callers, want) {
		t.Errorf("callers of AtMost: got %q, want %q", callers, want)
	}
}

// compare compares findings with the want comments of a module.
func compare(t *testing.T, src *tree, root string, found []finding) {
	t.Helper()
	wants := readWants(t, src, root)
	for _, f := range found {
		at := fmt.Sprintf("%s:%d", f.pos.Filename, f.pos.Line)
		i := slices.IndexFunc(wants[at], func(w string) bool { return strings.Contains(f.msg, w) })
		if i < 0 {
			t.Errorf("got %s, want no such finding", f)
			continue
		}
		wants[at] = slices.Delete(wants[at], i, i+1)
	}
	for at, left := range wants {
		for _, w := range left {
			t.Errorf("%s: got no finding, want one with %q", at, w)
		}
	}
}

// TestMatch: a folder does not match a folder whose name merely begins in the same way.
func TestMatch(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		pattern, path string
		want          bool
	}{
		{"core", "core", true},
		{"core", "core/fsm", false},
		{"core/...", "core", true},
		{"core/...", "core/fsm", true},
		{"core/...", "corex", false},
		{"sync/...", "sync/atomic", true},
		{anything, "what/ever", true},
	} {
		if got := match([]string{c.pattern}, c.path); got != c.want {
			t.Errorf("match(%q, %q) = %v, want %v", c.pattern, c.path, got, c.want)
		}
	}
}

var (
	wantComment = regexp.MustCompile(`// want (.*)$`)
	quoted      = regexp.MustCompile("`([^`]*)`")
)

func readWants(t *testing.T, src *tree, root string) map[string][]string {
	t.Helper()
	wants := map[string][]string{}
	for _, p := range src.all {
		for _, f := range slices.Concat(p.files, p.tests) {
			name := src.fset.Position(f.Pos()).Filename
			b, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(name)))
			if err != nil {
				t.Fatal(err)
			}
			for i, line := range strings.Split(string(b), "\n") {
				if m := wantComment.FindStringSubmatch(line); m != nil {
					for _, q := range quoted.FindAllStringSubmatch(m[1], -1) {
						at := fmt.Sprintf("%s:%d", name, i+1)
						wants[at] = append(wants[at], q[1])
					}
				}
			}
		}
	}
	return wants
}

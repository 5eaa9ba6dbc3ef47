package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tenure-go/tenure/internal/proof/mutate"
)

func numbered(sizes map[string]int) (all []pkg) {
	for path, size := range sizes {
		p := pkg{path: path}
		for n := range size {
			p.mutants = append(p.mutants, mutate.Found{Mutant: mutate.Mutant{Name: strconv.Itoa(n)}})
		}
		all = append(all, p)
	}
	return all
}

// Each mutant is planned once, and the mutants that the change affects are first. At a given
// commit, the order of the other mutants is always the same. Over several commits, each package and
// each mutant is early in the order at least once.
func TestPlan(t *testing.T) {
	t.Parallel()
	sizes := map[string]int{"a": 30, "b": 10, "c": 2, "d": 1, "e": 1}
	concerns := func(p pkg, m mutate.Found) bool { return p.path == "d" || p.path == "b" && m.Name < "3" }
	firstPackage, firstMutant := map[string]bool{}, map[int]bool{}
	for commit := range 200 {
		first, then := plan(strconv.Itoa(commit), numbered(sizes), concerns)
		again, thenAgain := plan(strconv.Itoa(commit), numbered(sizes), concerns)
		equal := func(a, b unit) bool { return a.pkg == b.pkg && slices.Equal(a.numbers, b.numbers) }
		if !slices.EqualFunc(first, again, equal) || !slices.EqualFunc(then, thenAgain, equal) {
			t.Fatalf("commit %d has two plans", commit)
		}
		left := map[string]int{}
		for _, u := range append(slices.Clone(first), then...) {
			left[u.pkg] += len(u.numbers)
			if sorted := slices.Sorted(slices.Values(u.numbers)); len(slices.Compact(sorted)) != len(u.numbers) {
				t.Errorf("%s has a mutant twice: %v", u.pkg, u.numbers)
			}
		}
		for path, size := range sizes {
			if left[path] != size {
				t.Errorf("%d of %d mutants of %s are planned", left[path], size, path)
			}
		}
		if count(first) != 4 || count(then) != 40 {
			t.Errorf("%d mutants come first and %d then, want 4 and 40", count(first), count(then))
		}
		firstPackage[then[0].pkg] = true
		for _, u := range then {
			if u.pkg == "a" {
				firstMutant[u.numbers[0]] = true
			}
		}
	}
	if len(firstPackage) != 4 || len(firstMutant) < 25 {
		t.Errorf("of 200 commits %d packages of 4 come first, and %d mutants of 30 in theirs", len(firstPackage), len(firstMutant))
	}
}

const (
	list  = "backends/sql/sqlite/mutants_test.go"
	texts = `package sqlite

var mutants = []mutate.Mutant{
	{Name: "here", Killer: "TestHere/x", Edits: []mutate.Edit{{File: "a.go", Old: "x"}}},
	{Name: "above", Killer: "TestThere", Edits: []mutate.Edit{{File: "b.go", Old: "x"}, {File: "../a.go", Old: "x"}}},
	{Name: "suite", Killer: "TestConformance/A", Edits: []mutate.Edit{{File: "statements.sql", Old: "x"}}},
	{Name: "rule", Killer: "S1 S2", Edits: []mutate.Edit{{File: "b.go", Old: "x"}}},
}
`
)

// A change concerns the mutants of its files, and no other mutants of their folders.
func TestConcerns(t *testing.T) {
	t.Parallel()
	r, git, write := newRepository(t)
	write(list, texts)
	write("backends/sql/sqlite/here_test.go", "package sqlite\n\nfunc TestHere(t *testing.T) {}\n")
	write("backends/sql/sqlite/there_test.go", "package sqlite\n\nfunc TestThere(t *testing.T) {}\n\nfunc TestHereToo() {}\n")
	write("backends/sql/sqlite/simulation_test.go", "package sqlite\n\nfunc TestSimulation(t *testing.T) {}\n")
	git("add", ".")
	git("commit", "-q", "-m", "a")
	for _, tt := range []struct{ file, text, want string }{
		{"", "", ""},
		{"backends/sql/sqlite/a.go", "package sqlite", "here"},
		{"backends/sql/a.go", "package sql", "above"},
		{"backends/sql/sqlite/b.go", "package sqlite", "above rule"},
		{"backends/sql/sqlite/statements.sql", "SELECT", "suite"},
		{"backends/sql/sqlite/here_test.go", "package sqlite\n\nfunc TestHere(t *testing.T) { t.Log() }\n", "here"},
		{"backends/sql/sqlite/there_test.go", "package sqlite\n\nfunc TestThere(t *testing.T) { t.Log() }\n", "above"},
		{"backends/sql/sqlite/simulation_test.go", "package sqlite\n\nfunc TestSimulation(t *testing.T) { t.Log() }\n", "rule"},
		{"conformance/a.go", "package conformance", "suite"},
		{"conformance/a.md", "# A", ""},
		{"core/a.go", "package core", ""},
		{list, strings.Replace(texts, `{Name: "rule"`, `{Name: "rules"`, 1), "rules"},
		{list, strings.Replace(texts, `Old: "x"}, {`, `Old: "y"}, {`, 1), "above"},
		{list, strings.Replace(texts, "{\n", "{\n\n", 1), ""},
	} {
		if tt.file != "" {
			write(tt.file, tt.text)
			git("add", ".")
		}
		if err := r.compare("HEAD"); err != nil {
			t.Fatal(err)
		}
		pkgs, err := packages(r.root)
		if err != nil || len(pkgs) != 1 || pkgs[0].path != "backends/sql/sqlite" {
			t.Fatalf("got packages %+v, %v", pkgs, err)
		}
		var got []string
		for _, m := range pkgs[0].mutants {
			if r.concerns(pkgs[0], m) {
				got = append(got, m.Name)
			}
		}
		if strings.Join(got, " ") != tt.want {
			t.Errorf("%s changed: got %q, want %q", tt.file, got, tt.want)
		}
		git("reset", "-q", "--hard")
	}
	if err := r.compare("no-such-commit"); err == nil {
		t.Error("a commit that is not there is taken")
	}
}

// The order is CI_BASE if it is an ancestor, the commit that "make mutants" recorded, the beginning
// of the branch, and the previous commit.
func TestBase(t *testing.T) {
	r, git, write := newRepository(t)
	var commits []string
	for n := range 5 {
		write("a.go", strconv.Itoa(n))
		git("add", ".")
		git("commit", "-q", "-m", "a")
		commits = append(commits, git("rev-parse", "HEAD"))
	}
	head := commits[4]
	t.Setenv("GOCACHE", filepath.Join(t.TempDir(), "cache"))
	t.Setenv("CI_BASE", "")
	want := func(commit string) {
		t.Helper()
		if got, why := r.base(head); got != commit {
			t.Errorf("got %s, %s; want %s of %s", got, why, commit, commits)
		}
	}
	want(commits[3])
	git("update-ref", "refs/remotes/origin/main", commits[1])
	want(commits[1])
	git("update-ref", "refs/remotes/origin/main", head)
	want(commits[3])
	if err := os.MkdirAll(os.Getenv("GOCACHE"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(os.Getenv("GOCACHE"), "tenure-mutants-died"), []byte(commits[2]+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	want(commits[2])
	t.Setenv("CI_BASE", commits[0])
	want(commits[0])
	t.Setenv("CI_BASE", "0123456789012345678901234567890123456789")
	want(commits[2])
}

// newRepository is a git repository. Its method git returns the command's output.
func newRepository(t *testing.T) (r *repository, git func(args ...string) string, write func(name, text string)) {
	r = &repository{root: t.TempDir()}
	git = func(args ...string) string {
		t.Helper()
		args = append([]string{"-C", r.root, "-c", "user.name=a", "-c", "user.email=a@example.com"}, args...)
		out, err := exec.CommandContext(t.Context(), "git", args...).CombinedOutput()
		if err != nil {
			t.Fatalf("git %s: %v: %s", args, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	write = func(name, text string) {
		name = filepath.Join(r.root, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	git("init", "-q")
	return r, git, write
}

// A failure is a failure whatever else the output contains. A test that was cut off proves nothing.
func TestVerdict(t *testing.T) {
	t.Parallel()
	const died = "    run.go:1: 12 mutants died, of 40 chosen and 50 in all\n--- PASS: TestMutants\n"
	exit := errors.New("exit status 1")
	for _, tt := range []struct {
		out  string
		err  error
		cut  bool
		died int
		ok   bool
	}{
		{died, nil, false, 12, true},
		{died, exit, false, 0, false},
		{"ok\n", nil, false, 0, false},
		{"testing: warning: no tests to run\n", nil, false, 0, false},
		{"=== RUN   TestMutants/a\n", exit, true, 0, true},
		{"=== NAME  TestMutants/a\n    a_test.go:1: failed: survived TestA\n", exit, true, 0, false},
	} {
		if n, ok := verdict(tt.out, tt.err, tt.cut); n != tt.died || ok != tt.ok {
			t.Errorf("%q, %v, %v: got %d, %v; want %d, %v", tt.out, tt.err, tt.cut, n, ok, tt.died, tt.ok)
		}
	}
}

func TestSummary(t *testing.T) {
	t.Parallel()
	for want, n := range map[string][4]int{
		"mutants: 41 of changed files and 63 others tried, all died; " +
			"540 left for make check": {41, 41, 63, 603},
		"mutants: 30 of changed files and 0 others tried, all died; " +
			"610 left for make check, 10 OF THEM OF CHANGED FILES": {30, 40, 0, 600},
		"mutants: NONE was tried in this time; 600 left for make check": {0, 0, 0, 600},
	} {
		if got := summary(n[0], n[1], n[2], n[3]); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// When the time is over, no more mutants begin.
func TestOver(t *testing.T) {
	t.Parallel()
	r := &run{root: t.TempDir(), end: time.Now().Add(-time.Second)}
	if n := r.all([]unit{{"no/such/package", []int{0}}}); n != 0 || len(r.failed) > 0 {
		t.Errorf("%d died, %q failed", n, r.failed)
	}
	r.end = time.Now().Add(time.Hour)
	if n := r.all([]unit{{"no/such/package", []int{0}}}); n != 0 || len(r.failed) != 1 {
		t.Errorf("%d died, %q failed: a package that is not there passes", n, r.failed)
	}
}

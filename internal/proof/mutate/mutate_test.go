package mutate_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/tenure-go/tenure/internal/proof/mutate"
)

// right is judged by TestRight, and broken by TestBuild.
func right() bool { return true }

func TestRight(t *testing.T) {
	if !right() {
		t.Error("wrong")
	}
}

func TestBuild(t *testing.T) {
	t.Parallel()
	before, err := os.ReadFile("mutate_test.go")
	if err != nil {
		t.Fatal(err)
	}
	// The texts are taken apart, so that each is there once.
	binary := mutate.Build(t,
		mutate.Edit{File: "mutate_test.go", Old: "func right() bool" + " { return true }",
			New: "func right() bool { return false |" + "| wrong }"},
		mutate.Edit{File: "mutate_test.go", Old: "|" + "| wrong", New: ""})
	out, err := exec.CommandContext(t.Context(), binary, "-test.run", "^TestRight$").CombinedOutput()
	if err == nil || !strings.Contains(string(out), "--- FAIL: TestRight") {
		t.Errorf("the broken test passes: %v\n%s", err, out)
	}
	after, err := os.ReadFile("mutate_test.go")
	if err != nil || string(after) != string(before) {
		t.Errorf("the source was changed: %v", err)
	}
}

// An edit without its place, or with several, fails.
func TestFit(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{"func right() " + "bool { return true }": true, "func left() " + "bool": false, "return": false} {
		r := &recorder{TB: t}
		done := make(chan struct{})
		go func() {
			defer close(done)
			mutate.Fit(r, mutate.Edit{File: "mutate_test.go", Old: text})
		}()
		<-done
		if r.failed == want {
			t.Errorf("an edit of %q: failed is %v", text, r.failed)
		}
	}
}

// recorder notes a failure instead of failing.
type recorder struct {
	testing.TB
	failed bool
}

func (r *recorder) Fatalf(string, ...any) {
	r.failed = true
	runtime.Goexit()
}

func TestDocument(t *testing.T) {
	t.Parallel()
	page := filepath.Join(t.TempDir(), "page.md")
	if err := os.WriteFile(page, []byte("a\n<!-- begin x -->\nold\n<!-- end x -->\nb\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	mutate.Document(t, page, "x", "new\n", true)
	mutate.Document(t, page, "x", "new\n", false)
	b, err := os.ReadFile(page)
	if want := "a\n<!-- begin x -->\nnew\n<!-- end x -->\nb\n"; err != nil || string(b) != want {
		t.Errorf("got %q, %v; want %q", b, err, want)
	}
}

// A change touches the mutants of its folders, of the code that they edit and of the suite.
func TestChoice(t *testing.T) {
	git := repository(t)
	root, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	write := func(path, text string) {
		path = filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("core/a.go", "before")
	write("backends/sql/sqlite/a.go", "before")
	git("add", ".")
	git("commit", "-q", "-m", "a")
	t.Chdir(filepath.Join(root, "backends/sql/sqlite"))
	here, above := []mutate.Edit{{File: "a.go"}}, []mutate.Edit{{File: "../a.go"}}
	for _, tt := range []struct {
		set, changed, killer string
		edits                []mutate.Edit
		want                 bool
	}{
		{"false", "core/a.go", "TestA", here, false},
		{"true", "", "TestA", here, true},
		{"HEAD", "", "TestA", here, false},
		{"HEAD", "core/a.go", "TestA", here, false},
		{"HEAD", "core/a.go", "TestA", []mutate.Edit{{File: "a.go"}, {File: "../../../core/b.go"}}, true},
		{"HEAD", "backends/sql/sqlite/b.go", "TestA", above, true},
		{"HEAD", "backends/sql/b.go", "TestA", above, true},
		{"HEAD", "backends/sql/b.go", "TestA", here, false},
		{"HEAD", "backends/sql/b.md", "TestA", above, false},
		{"HEAD", "conformance/b.go", "TestA", here, false},
		{"HEAD", "conformance/b.go", "TestConformance/A", here, true},
	} {
		if tt.changed != "" {
			write(tt.changed, "after")
			git("add", ".")
		}
		var c mutate.Choice
		if err := c.Set(tt.set); err != nil {
			t.Fatal(err)
		}
		if got := c.Touched(tt.killer, tt.edits); got != tt.want {
			t.Errorf("-mutants=%s, %s changed, %s with %v: touched is %v, want %v", tt.set, tt.changed, tt.killer, tt.edits, got, tt.want)
		}
		git("reset", "-q", "--hard")
	}
	if err := new(mutate.Choice).Set("no-such-commit"); err == nil {
		t.Error("a commit that is not there is taken")
	}
}

// Without a commit a sample is tried: some and not all, the same each time at one commit, and
// over some commits all.
func TestSample(t *testing.T) {
	git := repository(t)
	const mutants, commits = 100, 60
	tried := map[int]bool{}
	for range commits {
		git("commit", "-q", "--allow-empty", "-m", "a")
		var c, again mutate.Choice
		if err := errors.Join(c.Set(""), again.Set("")); err != nil {
			t.Fatal(err)
		}
		some := 0
		for n := range mutants {
			edits := []mutate.Edit{{File: "a.go", New: strconv.Itoa(n)}}
			if c.Touched("TestA", edits) != again.Touched("TestA", edits) {
				t.Fatalf("mutant %d is in one of two samples of a commit", n)
			}
			if c.Touched("TestA", edits) {
				tried[n] = true
				some++
			}
		}
		if some == 0 || some > mutants/2 {
			t.Errorf("%d of %d mutants are in the sample", some, mutants)
		}
	}
	if len(tried) != mutants {
		t.Errorf("%d of %d mutants are in no sample of %d commits", mutants-len(tried), mutants, commits)
	}
}

// repository is a git repository, which is the working folder until the test ends.
func repository(t *testing.T) (git func(args ...string)) {
	root := t.TempDir()
	git = func(args ...string) {
		args = append([]string{"-C", root, "-c", "user.name=a", "-c", "user.email=a@example.com"}, args...)
		if out, err := exec.CommandContext(t.Context(), "git", args...).CombinedOutput(); err != nil {
			t.Skipf("git: %v: %s", err, out)
		}
	}
	git("init", "-q")
	t.Chdir(root)
	return git
}

package mutate_test

import (
	"os"
	"os/exec"
	"path/filepath"
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
	// The texts are split, so that each occurs once.
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

// An edit without its place, or with several, is an error.
func TestCheck(t *testing.T) {
	t.Parallel()
	const here = "mutate_test.go"
	for _, tt := range []struct {
		edits []mutate.Edit
		want  string // part of the error
	}{
		{[]mutate.Edit{{File: here, Old: "func right() " + "bool { return true }"}}, ""},
		{[]mutate.Edit{{File: here, Old: "func left() " + "bool"}}, "0 times"},
		{[]mutate.Edit{{File: here, Old: "return"}}, "times, want once"},
		{[]mutate.Edit{{File: here, In: "right", Old: "return"}}, ""},
		{[]mutate.Edit{{File: here, In: "right", Old: "true }\n\nfunc"}}, "0 times"},
		{[]mutate.Edit{{File: here, In: "left", Old: "return"}}, "no function left"},
		{[]mutate.Edit{{File: "together_test.go", In: "thing.twice", Old: "2 * x.n"}}, ""},
		{[]mutate.Edit{{File: "together_test.go", In: "twice", Old: "2 * x.n"}}, "no function twice"},
		{[]mutate.Edit{{File: here, In: "right", Old: "true", New: "maybe"}, {File: here, In: "right", Old: "maybe"}}, ""},
		{[]mutate.Edit{{File: here, In: "right", Old: "true", New: "maybe"}, {File: here, In: "right", Old: "true"}}, "0 times"},
		{[]mutate.Edit{{File: "gone_test.go", Old: "a"}}, "gone_test.go"},
	} {
		err := mutate.Check(".", tt.edits...)
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%q: got %v, want %q", tt.edits, err, tt.want)
		}
	}
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

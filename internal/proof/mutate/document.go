package mutate

import (
	"os"
	"strings"
	"testing"
)

// Document compares the part of a page between the lines "<!-- begin name -->" and "<!-- end name
// -->" with text. If update is set, Document writes text into this part.
func Document(t testing.TB, page, name, text string, update bool) {
	t.Helper()
	b, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	begin, end := "<!-- begin "+name+" -->\n", "<!-- end "+name+" -->"
	head, rest, found := strings.Cut(string(b), begin)
	old, tail, closed := strings.Cut(rest, end)
	switch {
	case !found || !closed:
		t.Fatalf("%s lacks the lines %q and %q", page, begin, end)
	case old == text:
	case !update:
		t.Fatalf("%s is out of date: go test -run %s . -args -update", page, t.Name())
	default:
		if err := os.WriteFile(page, []byte(head+begin+text+end+tail), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

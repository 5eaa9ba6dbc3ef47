package conformance_test

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/tenure-go/tenure/conformance"
)

var update = flag.Bool("update", false, "write the generated tables into docs")

// TestDocumentedCases compares the table of docs/internals/conformance.md with the
// suite. After a change: go test ./conformance -run DocumentedCases -update
func TestDocumentedCases(t *testing.T) {
	t.Parallel()
	const path = "../docs/internals/conformance.md"
	old, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	const begin, end = "<!-- begin cases -->\n", "<!-- end cases -->"
	head, rest, found := strings.Cut(string(old), begin)
	_, tail, closed := strings.Cut(rest, end)
	if !found || !closed {
		t.Fatalf("%s lacks the lines %q and %q", path, begin, end)
	}
	text := head + begin + casesTable() + end + tail
	if text == string(old) {
		return
	}
	if !*update {
		t.Fatalf("%s is out of date: go test ./conformance -run DocumentedCases -update", path)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// caseName matches a case, or an area of cases, that a page names.
var caseName = regexp.MustCompile(
	"`(?:TestConformance/)?((?:Membership|Acquire|Release|Commit|Log|Views|Errors|Chaos)(?:/[A-Za-z]+)?)[`']")

// TestNamedCases: the suite has each case that docs/writing-a-backend.md names.
func TestNamedCases(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../docs/writing-a-backend.md")
	if err != nil {
		t.Fatal(err)
	}
	names := caseName.FindAllStringSubmatch(string(text), -1)
	if len(names) < 15 {
		t.Fatalf("%d cases in the page: the pattern no longer finds them", len(names))
	}
	for _, name := range names {
		found := false
		for _, c := range conformance.Cases() {
			found = found || strings.HasPrefix(c.Name, name[1])
		}
		if !found {
			t.Errorf("the page names %q, which matches no case", name[1])
		}
	}
}

func casesTable() string {
	var b strings.Builder
	b.WriteString("| case | shows that | rules; needs |\n|---|---|---|\n")
	for _, c := range conformance.Cases() {
		var rules []string
		for _, r := range c.Rules {
			rules = append(rules, string(r))
		}
		needs := ""
		if len(c.Needs) > 0 {
			needs = "; " + strings.Join(c.Needs, ", ")
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s%s |\n", c.Name, c.Shows, strings.Join(rules, " "), needs)
	}
	return b.String()
}

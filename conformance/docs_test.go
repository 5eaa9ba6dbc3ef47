package conformance_test

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/tenure-go/tenure/conformance"
)

var update = flag.Bool("update", false, "write the generated tables into docs/conformance.md")

// TestDocumentedTables compares the tables of docs/conformance.md with the
// suite. After a change: go test ./conformance -run DocumentedTables -update
func TestDocumentedTables(t *testing.T) {
	t.Parallel()
	const path = "../docs/conformance.md"
	old, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	text := string(old)
	for name, table := range map[string]string{
		"cases":   casesTable(),
		"mutants": mutantsTable(),
	} {
		begin, end := "<!-- begin "+name+" -->\n", "<!-- end "+name+" -->"
		head, rest, found := strings.Cut(text, begin)
		_, tail, closed := strings.Cut(rest, end)
		if !found || !closed {
			t.Fatalf("%s lacks the lines %q and %q", path, begin, end)
		}
		text = head + begin + table + end + tail
	}
	if text == string(old) {
		return
	}
	if !*update {
		t.Fatalf("%s is out of date: go test ./conformance -run DocumentedTables -update", path)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func casesTable() string {
	var b strings.Builder
	b.WriteString("| case | shows that | rules | needs |\n|---|---|---|---|\n")
	for _, c := range conformance.Cases() {
		var rules []string
		for _, r := range c.Rules {
			rules = append(rules, string(r))
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", c.Name(), c.Shows, strings.Join(rules, " "),
			strings.Join(c.Needs, ", "))
	}
	return b.String()
}

func mutantsTable() string {
	var b strings.Builder
	b.WriteString("| a backend that | fails | because of |\n|---|---|---|\n")
	for _, m := range mutants() {
		fmt.Fprintf(&b, "| %s | `%s` | %s %s |\n", m.does, m.killer, m.rule, m.rule.Title())
	}
	return b.String()
}

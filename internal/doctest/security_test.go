package doctest

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	named    = regexp.MustCompile("`([a-z][a-z/]*)` `((?:Test|Fuzz)[A-Za-z0-9]+)`")
	suiteRow = regexp.MustCompile("`([A-Z][a-z]+/[A-Za-z0-9]+)`")
	function = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)[A-Za-z0-9]+)\(`)
)

// TestSecurityPage: every attack of docs/security.md has a test, every test that the page names exists,
// and there are as many attacks as it had.
func TestSecurityPage(t *testing.T) {
	t.Parallel()
	text := pageText(t, "docs/security.md")
	cases := pageText(t, "docs/conformance.md")
	folders := []string{"", "backends", "backends/sql"}
	tests := func(pkg string) map[string]bool {
		all := make(map[string]bool)
		for _, f := range folders {
			files, err := filepath.Glob(filepath.Join(root, f, pkg, "*_test.go"))
			if err != nil {
				t.Fatal(err)
			}
			for _, file := range files {
				source, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				for _, found := range function.FindAllStringSubmatch(string(source), -1) {
					all[found[1]] = true
				}
			}
		}
		return all
	}
	for _, found := range named.FindAllStringSubmatch(text, -1) {
		if !tests(found[1])[found[2]] {
			t.Errorf("docs/security.md names %s of %s, which is not there", found[2], found[1])
		}
	}
	for _, found := range suiteRow.FindAllStringSubmatch(text, -1) {
		if !strings.Contains(cases, "| `"+found[1]+"` |") {
			t.Errorf("docs/security.md names the case %s, which the suite lacks", found[1])
		}
	}
	_, attacks, _ := strings.Cut(text, "\n## Attacks\n")
	attacks, _, _ = strings.Cut(attacks, "\n## ")
	rows := 0
	for line := range strings.Lines(attacks) {
		if !strings.HasPrefix(line, "| ") || strings.HasPrefix(line, "| attack ") {
			continue
		}
		rows++
		if !named.MatchString(line) && !suiteRow.MatchString(line) {
			t.Errorf("docs/security.md: no test for %s", strings.TrimSpace(line))
		}
	}
	if rows < 60 {
		t.Errorf("docs/security.md has %d attacks, fewer than 60", rows)
	}
}

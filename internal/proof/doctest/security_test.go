package doctest

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	named    = regexp.MustCompile("`([a-z][a-z/]*|each SQL)` `((?:Test|Fuzz)[A-Za-z0-9]+)`")
	suiteRow = regexp.MustCompile("`([A-Z][a-z]+/[A-Za-z0-9]+)`")
	function = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)[A-Za-z0-9]+)\(`)
)

// packagesOf returns the packages that the page names together.
func packagesOf(name string) []string {
	switch name {
	case "each":
		return []string{"sqlite", "postgres", "mysql", "etcd", "consul", "zookeeper", "redis"}
	case "each SQL":
		return []string{"sqlite", "postgres", "mysql"}
	}
	return []string{name}
}

// TestSecurityPage: every attack in docs/internals/attacks.md has a test, and the page has at least
// as many attacks as before. Every test that this page or docs/security.md names exists.
func TestSecurityPage(t *testing.T) {
	t.Parallel()
	text := pageText(t, "docs/security.md")
	cases := pageText(t, "docs/internals/conformance.md")
	folders := []string{"", "backends", "backends/sql", "backends/sql/internal"}
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
	attacks := pageText(t, "docs/internals/attacks.md")
	for _, found := range named.FindAllStringSubmatch(text+attacks, -1) {
		for _, pkg := range packagesOf(found[1]) {
			if !tests(pkg)[found[2]] {
				t.Errorf("the pages name %s of %s, which is not there", found[2], pkg)
			}
		}
	}
	for _, found := range suiteRow.FindAllStringSubmatch(text+attacks, -1) {
		if !strings.Contains(cases, "| `"+found[1]+"` |") {
			t.Errorf("docs/internals/attacks.md names the case %s, which the suite lacks", found[1])
		}
	}
	evidence := make(map[string]bool)
	for line := range strings.Lines(attacks) {
		if !strings.HasPrefix(line, "| ") || strings.HasPrefix(line, "| attack ") {
			continue
		}
		tests := append(named.FindAllString(line, -1), suiteRow.FindAllString(line, -1)...)
		for _, name := range tests {
			evidence[name] = true
		}
		if len(tests) == 0 {
			t.Errorf("docs/internals/attacks.md: no test for %s", strings.TrimSpace(line))
		}
	}
	if len(evidence) < 120 {
		t.Errorf("docs/internals/attacks.md names %d tests of attacks, fewer than 120", len(evidence))
	}
}

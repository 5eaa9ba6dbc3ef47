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

// packagesOf are the packages that the page names together.
func packagesOf(name string) []string {
	switch name {
	case "each":
		return []string{"sqlite", "postgres", "mysql", "etcd", "consul", "zookeeper", "redis"}
	case "each SQL":
		return []string{"sqlite", "postgres", "mysql"}
	}
	return []string{name}
}

// TestSecurityPage: every attack of docs/security.md has a test, every test that the page names exists,
// and the page names as many as it did.
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
		for _, pkg := range packagesOf(found[1]) {
			if !tests(pkg)[found[2]] {
				t.Errorf("docs/security.md names %s of %s, which is not there", found[2], pkg)
			}
		}
	}
	for _, found := range suiteRow.FindAllStringSubmatch(text, -1) {
		if !strings.Contains(cases, "| `"+found[1]+"` |") {
			t.Errorf("docs/security.md names the case %s, which the suite lacks", found[1])
		}
	}
	_, attacks, _ := strings.Cut(text, "\n## Attacks\n")
	attacks, _, _ = strings.Cut(attacks, "\n## ")
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
			t.Errorf("docs/security.md: no test for %s", strings.TrimSpace(line))
		}
	}
	if len(evidence) < 120 {
		t.Errorf("docs/security.md names %d tests of attacks, fewer than 120", len(evidence))
	}
}

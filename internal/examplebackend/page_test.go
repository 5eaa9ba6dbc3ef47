package examplebackend

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/tenure-go/tenure/conformance"
)

var (
	caseName = regexp.MustCompile("`(?:TestConformance/)?((?:Membership|Acquire|Release|Commit|Log|Views|Errors|Chaos)(?:/[A-Za-z]+)?)[`']")
	pageLink = regexp.MustCompile(`\]\(([^)#:]+)\)`)
)

// TestPage holds docs/writing-a-backend.md against the suite and the tree: the
// cases that it names run, and the targets of its links exist.
func TestPage(t *testing.T) {
	t.Parallel()
	const docs = "../../docs"
	text, err := os.ReadFile(filepath.Join(docs, "writing-a-backend.md"))
	if err != nil {
		t.Fatal(err)
	}
	names := caseName.FindAllStringSubmatch(string(text), -1)
	links := pageLink.FindAllStringSubmatch(string(text), -1)
	if len(names) < 15 || len(links) < 8 {
		t.Fatalf("found %d cases and %d links in the page: the patterns no longer match it", len(names), len(links))
	}
	for _, name := range names {
		found := false
		for _, c := range conformance.Cases() {
			found = found || strings.HasPrefix(c.Name(), name[1])
		}
		if !found {
			t.Errorf("the page names %q, which matches no case", name[1])
		}
	}
	for _, link := range links {
		if _, err := os.Stat(filepath.Join(docs, link[1])); err != nil {
			t.Errorf("the page links to %s: %v", link[1], err)
		}
	}
}

package doctest

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestCounterexamples: the picture of each counterexample has the title of its row in
// docs/internals/proof.md. proof/check.sh, which draws the pictures, runs only after a change of the
// protocol.
func TestCounterexamples(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(filepath.Join(root, "docs", "internals", "proof.md"))
	if err != nil {
		t.Fatal(err)
	}
	rows := regexp.MustCompile(`(?m)^\| \[([^]]*)\]\((proof/([^)]+)\.svg)\) \| ([^|]*) \|`).FindAllStringSubmatch(string(page), -1)
	if len(rows) < 20 {
		t.Fatalf("the page has only %d rows with pictures", len(rows))
	}
	for _, row := range rows {
		title := row[1] + ": " + row[4]
		if c := row[3][0]; c >= 'A' && c <= 'Z' {
			title = "Without " + title
		}
		picture, err := os.ReadFile(filepath.Join(root, "docs", "internals", row[2]))
		if err != nil {
			t.Error(err)
		} else if !strings.Contains(string(picture), "<title>"+title+"</title>") {
			t.Errorf("%s has another title than its row, %q: run make proof-pictures", row[2], title)
		}
	}
}

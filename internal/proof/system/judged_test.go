package system

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
)

// TestJudged: the list of judged rules has every rule that a run's finding can name.
func TestJudged(t *testing.T) {
	t.Parallel()
	named := regexp.MustCompile(`(?:[fF]inding|find|report)\("([A-Z][0-9]+)"`)
	var files []string
	for _, pattern := range []string{"*.go", "../history/*.go"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, found...)
	}
	var rules []string
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range named.FindAllSubmatch(text, -1) {
			rules = append(rules, string(m[1]))
		}
	}
	slices.Sort(rules)
	const followers = "T4" // a run has no followers
	for _, rule := range slices.Compact(rules) {
		if rule != followers && !slices.Contains(Judged(), rule) {
			t.Errorf("Judged lacks %s", rule)
		}
	}
	if len(rules) < 20 {
		t.Errorf("%d findings: the pattern no longer finds them", len(rules))
	}
}

package doctest

import (
	"path/filepath"
	"regexp"
	"slices"
	"testing"
)

// TestTemplate: the pages of the backends have the same headings in the same order.
func TestTemplate(t *testing.T) {
	t.Parallel()
	want := []string{"Requirements", "Start", "In production", "Roles", "Connections and TLS", "Records", "Costs", "Limits",
		"High availability", "Restore drill", "What to watch"}
	pages, err := filepath.Glob(filepath.Join(root, "docs", "backends", "*.md"))
	if err != nil || len(pages) != 8 {
		t.Fatalf("%d pages of backends, want 8: %v", len(pages), err)
	}
	second := regexp.MustCompile(`(?m)^## (.+)$`)
	for _, page := range pages {
		page, err := filepath.Rel(root, page)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, h := range second.FindAllStringSubmatch(fenced.ReplaceAllString(pageText(t, page), ""), -1) {
			got = append(got, h[1])
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s has the headings\n%q, want\n%q", page, got, want)
		}
	}
}

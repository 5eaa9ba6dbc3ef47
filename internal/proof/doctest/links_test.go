package doctest

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ (.+)$`)
	fenced  = regexp.MustCompile("(?ms)^```.*?^```")
	nothing = regexp.MustCompile("[^a-z0-9 -]")
)

// TestLinks: the targets of the pages' links within the repository exist, including headings.
func TestLinks(t *testing.T) {
	t.Parallel()
	n := 0
	for _, page := range pages(t) {
		text := pageText(t, page)
		for _, found := range link.FindAllStringSubmatch(text, -1) {
			path, anchor, _ := strings.Cut(found[1], "#")
			if strings.Contains(path, "://") {
				continue
			}
			n++
			target := page
			if path != "" {
				target = filepath.Join(filepath.Dir(page), filepath.FromSlash(path))
			}
			if _, err := os.Stat(filepath.Join(root, target)); err != nil {
				t.Errorf("%s links to %s: %v", page, found[1], err)
			} else if anchor != "" && !anchors(pageText(t, target))[anchor] {
				t.Errorf("%s links to %s: no such heading", page, found[1])
			}
		}
	}
	if n < 50 {
		t.Errorf("%d links: the pattern no longer finds them", n)
	}
}

func pageText(t *testing.T, page string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, page))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func anchors(text string) map[string]bool {
	all := make(map[string]bool)
	for _, h := range heading.FindAllStringSubmatch(fenced.ReplaceAllString(text, ""), -1) {
		all[strings.ReplaceAll(nothing.ReplaceAllString(strings.ToLower(h[1]), ""), " ", "-")] = true
	}
	return all
}

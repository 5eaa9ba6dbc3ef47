package doctest

import (
	"encoding/xml"
	"errors"
	"io"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestIndex: the README.md of each folder of docs links to the pages in that folder, and in
// subfolders without a README.md. The users' index has one link to the maintainers' pages.
func TestIndex(t *testing.T) {
	t.Parallel()
	linked := make(map[string]map[string]bool) // by index
	for _, page := range pages(t) {
		if !strings.HasPrefix(page, "docs/") || filepath.Base(page) != "README.md" {
			continue
		}
		linked[page] = make(map[string]bool)
		for _, found := range link.FindAllStringSubmatch(pageText(t, page), -1) {
			path, _, _ := strings.Cut(found[1], "#")
			linked[page][filepath.ToSlash(filepath.Join(filepath.Dir(page), path))] = true
		}
	}
	if len(linked) != 3 {
		t.Errorf("%d indexes, want docs, docs/internals and docs/internals/design", len(linked))
	}
	for path := range linked["docs/README.md"] {
		if strings.HasPrefix(path, "docs/internals/") && path != "docs/internals/README.md" {
			t.Errorf("docs/README.md leads users to %s: docs/internals/README.md is its place", path)
		}
	}
	for _, page := range pages(t) {
		if !strings.HasPrefix(page, "docs/") || page == "docs/README.md" {
			continue
		}
		index := indexOf(page, linked)
		if !linked[index][page] {
			t.Errorf("%s does not lead to %s: add it where its readers look", index, page)
		}
	}
}

// indexOf is the nearest index above a page.
func indexOf(page string, indexes map[string]map[string]bool) string {
	for dir := filepath.Dir(page); ; dir = filepath.Dir(dir) {
		if index := filepath.ToSlash(filepath.Join(dir, "README.md")); index != page && indexes[index] != nil {
			return index
		}
	}
}

var image = regexp.MustCompile(`!\[([^]]*)\]\(([^)]+)\)`)

// TestPictures: every picture of a page has an alternative text. A drawing is well-formed and has
// colors for a dark page.
func TestPictures(t *testing.T) {
	t.Parallel()
	n := 0
	for _, page := range pages(t) {
		for _, found := range image.FindAllStringSubmatch(pageText(t, page), -1) {
			n++
			if len(found[1]) < 10 {
				t.Errorf("%s: %s has no text that says what it shows", page, found[2])
			}
			if !strings.HasSuffix(found[2], ".svg") {
				continue
			}
			file := filepath.Join(filepath.Dir(page), found[2])
			text := pageText(t, file)
			if !strings.Contains(strings.ReplaceAll(text, " ", ""), "@media(prefers-color-scheme:dark)") {
				t.Errorf("%s has no colours for a dark page", file)
			}
			if err := wellFormed(text); err != nil {
				t.Errorf("%s: %v", file, err)
			}
		}
	}
	if n < 5 {
		t.Errorf("%d pictures: the pattern no longer finds them", n)
	}
}

func wellFormed(text string) error {
	for d := xml.NewDecoder(strings.NewReader(text)); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
	}
}

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

// TestIndex: docs/README.md leads to every page of docs.
func TestIndex(t *testing.T) {
	t.Parallel()
	linked := map[string]bool{"docs/README.md": true}
	for _, found := range link.FindAllStringSubmatch(pageText(t, "docs/README.md"), -1) {
		path, _, _ := strings.Cut(found[1], "#")
		linked[filepath.ToSlash(filepath.Join("docs", path))] = true
	}
	for _, page := range pages(t) {
		if strings.HasPrefix(page, "docs/") && !linked[page] {
			t.Errorf("docs/README.md does not lead to %s: add it where its readers look", page)
		}
	}
}

var image = regexp.MustCompile(`!\[([^]]*)\]\(([^)]+)\)`)

// TestPictures: every picture of a page has a text instead, and a drawing is well formed and has colours for a dark page.
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

package doctest

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

const root = "../../.."

type block struct {
	page string // relative to the repository, with slashes
	line int
	lang string
	mark string // from the comment <!-- mark --> on the line before
	text string
	next *block // the next block of the page before the next heading, in any language
}

// name returns the block's place, as a folder's name.
func (b *block) name() string {
	page := strings.TrimSuffix(strings.TrimPrefix(b.page, "docs/"), ".md")
	return strings.ToLower(strings.ReplaceAll(page, "/", "-")) + "-" + strconv.Itoa(b.line)
}

func (b *block) String() string { return b.page + ":" + strconv.Itoa(b.line) }

// isProgram reports whether a block is a whole program.
func (b *block) isProgram() bool {
	return strings.HasPrefix(b.text, "package main\n") && strings.Contains(b.text, "\nfunc main() {")
}

func pages(t *testing.T) []string {
	t.Helper()
	paths := []string{"README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md"}
	err := filepath.WalkDir(filepath.Join(root, "docs"), func(path string, d fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, ".md") {
			path, err = filepath.Rel(root, path)
			paths = append(paths, filepath.ToSlash(path))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return paths
}

func blocks(t *testing.T, page string) []*block {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(page)))
	if err != nil {
		t.Fatal(err)
	}
	var all []*block
	var open, last *block
	mark := ""
	for i, line := range strings.Split(string(text), "\n") {
		lang, fenced := strings.CutPrefix(line, "```")
		switch {
		case open != nil && fenced:
			all = append(all, open)
			if last != nil {
				last.next = open
			}
			last, open = open, nil
		case open != nil:
			open.text += line + "\n"
		case fenced:
			open = &block{page: page, line: i + 1, lang: lang, mark: mark}
		case strings.HasPrefix(line, "#"):
			last = nil
		}
		mark, _ = strings.CutPrefix(line, "<!-- ")
		if mark = strings.TrimSuffix(mark, " -->"); mark == line {
			mark = ""
		}
	}
	if open != nil {
		t.Fatalf("%s: the block is not closed", open)
	}
	return all
}

// files writes the blocks of a page marked <!-- file: NAME --> to a folder. addr replaces pageAddr.
func files(t *testing.T, page, dir, addr string) {
	t.Helper()
	for _, b := range blocks(t, page) {
		if name, ok := strings.CutPrefix(b.mark, "file: "); ok {
			write(t, filepath.Join(dir, name), strings.ReplaceAll(b.text, pageAddr, addr))
		}
	}
}

func goBlocks(t *testing.T) []*block {
	t.Helper()
	var all []*block
	for _, page := range pages(t) {
		for _, b := range blocks(t, page) {
			if b.lang == "go" {
				all = append(all, b)
			}
		}
	}
	if len(all) < 10 {
		t.Fatalf("%d blocks of Go: the pattern no longer finds them", len(all))
	}
	return all
}

// stamp matches package log's prefix of a line, which pages omit.
var stamp = regexp.MustCompile(`^\d{4}/\d\d/\d\d \d\d:\d\d:\d\d `)

// matches compares a line of a page with a printed line. "..." matches any text.
func matches(want, got string) bool {
	got = stamp.ReplaceAllString(got, "")
	pattern := strings.ReplaceAll(regexp.QuoteMeta(want), `\.\.\.`, `.*`)
	return regexp.MustCompile("^" + pattern + "$").MatchString(got)
}

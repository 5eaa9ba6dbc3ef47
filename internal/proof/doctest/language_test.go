package doctest

import (
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// maxSentence is the largest number of words in a sentence (CONTRIBUTING).
const maxSentence = 35

var (
	// unordinary matches words that CONTRIBUTING replaces with ordinary words.
	unordinary = regexp.MustCompile(`(?i)\b(?:fells|anew|of late(?:[.,;]|$)|for good|at present|goes? on (?:as|until|with|when)|all the same|as ever|meanwhile|is none|any more|in the place of|at once)\b`)
	inCode     = regexp.MustCompile("`[^`]*`|\\]\\([^)]*\\)|<[^>]*>")
	endOf      = regexp.MustCompile(`[.!?:;](?:\)|"|\*\*)?\s+|[.!?:;]$|\n\s*\n|\s+\|\s+|\n\s*(?:[-*]|[0-9]+\.)\s`)
)

// prose returns the text of a page without its blocks of code, and without inline code.
func prose(text string) string {
	var b strings.Builder
	code := false
	for line := range strings.Lines(text) {
		switch trimmed := strings.TrimSpace(line); {
		case strings.HasPrefix(trimmed, "```"):
			code = !code
		case code:
		case strings.HasPrefix(trimmed, "#"):
			b.WriteString("\n\n")
		default:
			b.WriteString(line)
		}
	}
	return inCode.ReplaceAllString(b.String(), "X")
}

// checkLanguage reports words and long sentences of a text.
func checkLanguage(t *testing.T, where, text string) {
	t.Helper()
	if found := unordinary.FindString(text); found != "" {
		t.Errorf("%s has %q: CONTRIBUTING names an ordinary word", where, found)
	}
	for _, s := range endOf.Split(text, -1) {
		if n := len(strings.Fields(s)); n > maxSentence {
			t.Errorf("%s has a sentence of %d words, at most %d: %.200s", where, n, maxSentence, strings.Join(strings.Fields(s), " "))
		}
	}
}

// TestLanguage: the pages, and the comments of Go outside tests, have ordinary words and no long sentence.
func TestLanguage(t *testing.T) {
	t.Parallel()
	out, err := exec.CommandContext(t.Context(), "git", "-C", root, "ls-files", "*.go", "*.md").Output()
	if err != nil {
		t.Skipf("no repository: %v", err)
	}
	texts := 0
	for _, name := range strings.Fields(string(out)) {
		if strings.HasSuffix(name, "_test.go") || strings.Contains(name, "testdata/") || name == "CHANGELOG.md" || name == "CONTRIBUTING.md" {
			continue
		}
		source, err := os.ReadFile(filepath.Join(root, name))
		if os.IsNotExist(err) {
			continue // removed, and not yet committed
		}
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(name, ".md") {
			checkLanguage(t, name, prose(string(source)))
			texts++
			continue
		}
		fset := token.NewFileSet()
		file, err := parser.ParseFile(fset, name, source, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, group := range file.Comments {
			var text strings.Builder
			for line := range strings.Lines(group.Text()) {
				if strings.HasPrefix(line, "\t") || strings.HasPrefix(line, "    ") && !strings.HasPrefix(strings.TrimSpace(line), "-") {
					line = "\n" // code
				}
				text.WriteString(line)
			}
			checkLanguage(t, fset.Position(group.Pos()).String(), text.String())
			texts++
		}
	}
	if texts < 5000 {
		t.Errorf("%d texts were found", texts)
	}
}

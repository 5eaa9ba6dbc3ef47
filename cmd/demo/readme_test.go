package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestReadme compares the lines of the demonstration in README.md with the reports of a run and of
// the control. "..." in a line matches any text.
func TestReadme(t *testing.T) {
	t.Parallel()
	read := func(path ...string) string {
		b, err := os.ReadFile(filepath.Join(path...))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	_, block, found := strings.Cut(read("..", "..", "README.md"), "$ go run ./cmd/demo\n")
	block, _, closed := strings.Cut(block, "```")
	pass, control, both := strings.Cut(block, "$ go run ./cmd/demo -unfenced\n")
	if !found || !closed || !both {
		t.Fatal("README.md does not show the demonstration and its control")
	}
	for report, lines := range map[string]string{"report-pass.golden": pass, "report-control.golden": control} {
		golden := read("testdata", report)
		for _, line := range strings.Split(strings.TrimSpace(lines), "\n") {
			pattern := "(?m)^" + strings.ReplaceAll(regexp.QuoteMeta(line), `\.\.\.`, ".*") + "$"
			if !regexp.MustCompile(pattern).MatchString(golden) {
				t.Errorf("README.md shows a line that %s lacks:\n%s", report, line)
			}
		}
	}
}

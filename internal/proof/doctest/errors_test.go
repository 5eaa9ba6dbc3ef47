package doctest

import (
	"regexp"
	"strings"
	"testing"

	"github.com/tenure-go/tenure/core"
)

var (
	declared = regexp.MustCompile(`(?m)^\t(Err[A-Z]\w+) += `)
	errorRow = regexp.MustCompile("(?m)^\\| `(Err[A-Z]\\w+)`(?: \\[`([\\w.]+)`\\])? \\| (.+) \\| .+ \\|$")
)

// TestErrors compares docs/errors.md with core's errors: each has a row, in the order of the code, and the row of a
// write's error says "nothing was" if and only if NotApplied does.
func TestErrors(t *testing.T) {
	t.Parallel()
	code := declared.FindAllStringSubmatch(pageText(t, "core/errors.go"), -1)
	page := pageText(t, "docs/errors.md")
	rows := make(map[string]string)
	for _, row := range errorRow.FindAllStringSubmatch(page, -1) {
		if rows[row[1]] != "" {
			t.Errorf("docs/errors.md has two rows for %s", row[1])
		}
		rows[row[1]] = row[3]
	}
	for _, e := range code {
		if rows[e[1]] == "" {
			t.Errorf("docs/errors.md has no row for core.%s", e[1])
		}
		delete(rows, e[1])
	}
	for name := range rows {
		t.Errorf("docs/errors.md has %s, which core has not", name)
	}
	for name, err := range map[string]error{
		"ErrFenced": core.ErrFenced, "ErrConflict": core.ErrConflict, "ErrUnknown": core.ErrUnknown, "ErrTooLarge": core.ErrTooLarge,
	} {
		says := regexp.MustCompile("(?m)^\\| `" + name + "`.*$").FindString(page)
		if strings.Contains(says, "nothing was") != core.NotApplied(err) {
			t.Errorf("docs/errors.md: %s: NotApplied is %v", says, core.NotApplied(err))
		}
	}
}

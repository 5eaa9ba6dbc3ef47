package doctest

import (
	"regexp"
	"strings"
	"testing"

	"github.com/tenure-go/tenure/core"
)

// wrongPage has a row for each error and for each line of the log.
const wrongPage = "docs/when-something-is-wrong.md"

var (
	declared = regexp.MustCompile(`(?m)^\t(Err[A-Z]\w+)(?: error)? += `)
	errorRow = regexp.MustCompile("(?m)^\\| `(Err[A-Z]\\w+)`(?: \\[`([\\w.]+)`\\])? \\| (.+) \\| .+ \\|$")
)

// TestErrors compares the page with core's errors. Each error has a row. For an error of a write,
// the row says "nothing was" exactly when NotApplied returns true for the error.
func TestErrors(t *testing.T) {
	t.Parallel()
	code := declared.FindAllStringSubmatch(pageText(t, "core/errors.go"), -1)
	page := pageText(t, wrongPage)
	rows := make(map[string]string)
	for _, row := range errorRow.FindAllStringSubmatch(page, -1) {
		if rows[row[1]] != "" {
			t.Errorf("%s has two rows for %s", wrongPage, row[1])
		}
		rows[row[1]] = row[3]
	}
	for _, e := range code {
		if rows[e[1]] == "" {
			t.Errorf("%s has no row for core.%s", wrongPage, e[1])
		}
		delete(rows, e[1])
	}
	for name := range rows {
		t.Errorf("%s has %s, which core has not", wrongPage, name)
	}
	for name, err := range map[string]error{
		"ErrFenced": core.ErrFenced, "ErrConflict": core.ErrConflict, "ErrUnknown": core.ErrUnknown, "ErrTooLarge": core.ErrTooLarge,
	} {
		says := regexp.MustCompile("(?m)^\\| `" + name + "`.*$").FindString(page)
		if strings.Contains(says, "nothing was") != core.NotApplied(err) {
			t.Errorf("%s: %s: NotApplied is %v", wrongPage, says, core.NotApplied(err))
		}
	}
}

package main

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/core/driver"
)

// TestExplain: the type of an error, not its text, shows that a part is missing. The message uses
// the store's name for the missing part.
func TestExplain(t *testing.T) {
	t.Parallel()
	lost := &driver.MissingError{What: `namespace "app" has no record`, Make: "any words", Err: core.ErrStoreChanged}
	for _, c := range []struct {
		err  error
		want string
	}{
		{lost, `namespace "app" has no record: make it with: tenure init; if it was in use before: store changed`},
		{fmt.Errorf("open: %w", &driver.MissingError{What: "no tables", Make: "any words", Err: core.ErrUnsupported}),
			"no tables: check the configuration, or make it with: tenure init"},
		{&driver.MissingError{What: "no file", Make: "any words"}, "no file: check the configuration"},
	} {
		got := explain(c.err, false)
		if codeOf(t.Context(), got) != exitNotFound || !strings.HasPrefix(got.Error(), c.want) ||
			strings.Contains(got.Error(), "any words") {
			t.Errorf("%v: got code %d, %v; want %q", c.err, codeOf(t.Context(), got), got, c.want)
		}
		if got := explain(c.err, true); !errors.Is(got, c.err) {
			t.Errorf("while it is made: got %v, want %v", got, c.err)
		}
	}
	planted := errors.New(`tenure: the path "run Migrate, or open it once with Create" is a directory`)
	if got := explain(planted, false); !errors.Is(got, planted) || codeOf(t.Context(), got) == exitNotFound {
		t.Errorf("an error that quotes the advice: got %v", got)
	}
	if !strings.Contains(lost.Error(), "run tenure init, or any words") {
		t.Errorf("a program's error does not name the command: %v", lost)
	}
	if !errors.Is(explain(lost, false), core.ErrStoreChanged) {
		t.Error("the sentinel is lost")
	}
}

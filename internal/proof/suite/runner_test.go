package suite

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
)

// TestRunner: for everything that the suites use, T behaves like the T of package testing.
func TestRunner(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var order []string
	note := func(s string) { mu.Lock(); defer mu.Unlock(); order = append(order, s) }
	ctx, cancel := context.WithCancel(t.Context())
	r := NewRunner(2, func(string) {}, func(s string) string { return strings.ReplaceAll(s, "secret", "xxxxx") })
	failures := r.Do(ctx, "root", func(t T) {
		t.Cleanup(func() { note("last") })
		t.Run("parallel", func(t T) {
			for _, name := range []string{"a", "b", "c"} {
				t.Run(name, func(t T) {
					t.Parallel()
					note("case")
				})
			}
			note("group")
		})
		if t.Run("fails", func(t T) {
			t.Cleanup(func() { note("first " + t.Context().Err().Error()) })
			t.Fatalf("a %s", "secret")
			note("never")
		}) {
			note("passed")
		}
		t.Run("panics", func(T) { panic("oops") })
		t.Run("skips", func(t T) { t.Skipf("no"); note("never") })
		cancel()
		t.Run("late", func(T) { note("never") })
	})
	if want := []string{"group", "case", "case", "case", "first context canceled", "last"}; !slices.Equal(order, want) {
		t.Errorf("got the order %q, want %q", order, want)
	}
	if len(failures) != 2 || failures[0] != "a xxxxx" || !strings.HasPrefix(failures[1], "panicked: oops") {
		t.Errorf("got the failures %q", failures)
	}
}

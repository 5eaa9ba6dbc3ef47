// Package share reduces the size of exploration tests when they run with -short.
package share

import (
	"flag"
	"testing"
)

// Of returns how many items a test tries: all or, with -short, less. If it returns less, Of also
// logs the number, with name as a description. If a flag called name is set, its value is all, and
// Of returns all even with -short.
func Of(t testing.TB, name string, all, less int) int {
	t.Helper()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == name })
	if !testing.Short() || given || less >= all {
		return all
	}
	t.Logf("-short: %d of %d %s", less, all, name)
	return less
}

// Package share has the sizes of tests that explore, for a run with -short.
package share

import (
	"flag"
	"testing"
)

// Of returns how many of what is named name a test tries: less with -short, and says so, or
// else all. If a flag of that name is given, all is its value, which holds with -short, too.
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

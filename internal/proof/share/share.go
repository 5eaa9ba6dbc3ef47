// Package share has the sizes of tests that explore, for a run with -short.
package share

import (
	"flag"
	"testing"
)

// Of returns how many of the things called name a test tries: all, or with -short less. It logs the
// smaller number. If a flag of that name is given, all is its value, also with -short.
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

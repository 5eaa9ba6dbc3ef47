// Package share reduces the sizes of exploring tests in a run with -short.
package share

import (
	"flag"
	"testing"
)

// Of returns how many of the things called name a test tries: all or, with -short, fewer. It logs
// the smaller number. If a flag with that name is given, Of returns all, even with -short. The
// argument all is then the flag's value.
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

// Package mutate builds a package's tests from changed source, with a build overlay. A check that
// has never failed proves nothing. Tests therefore use package mutate to show that checks fail on
// broken code. No shipped package contains a switch that turns a rule off.
//
// The package is for tests only. The source on disk stays unchanged.
package mutate

// Package mutate builds a package's tests from changed source, by an overlay of the build, for
// tests that must see broken code fail. A check that nothing has ever failed proves nothing, and no
// shipped package has a switch that turns a rule off.
//
// It is for tests only. The source on disk stays unchanged.
package mutate

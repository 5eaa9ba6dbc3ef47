// Package mutate builds a package's tests from changed source, with a build overlay, for tests that
// show that broken code fails. A check that has never failed proves nothing, and no shipped package
// has a switch that turns a rule off.
//
// It is for tests only. The source on disk stays unchanged.
package mutate

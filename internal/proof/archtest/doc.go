// Package archtest holds the architecture rules of this repository as tests: which
// package may import which, and constructs that no package may contain. It has no
// other code, and nothing imports it.
//
// The import table is in rules_test.go, one row per package. A new package fails
// the test until it has a row, so that its imports are decided once, in review, and
// not by the first import that compiles. The other rules stand beside the code that
// checks them, in forbid_test.go and vars_test.go.
//
// All files are read, of any build constraints, nested modules included; test files
// may import and do anything, and so may files that are built by hand only
// (//go:build ignore).
//
// The checks themselves are tested against the synthetic module in
// testdata/module: each line there that ends in a want comment must be reported,
// and no other.
package archtest

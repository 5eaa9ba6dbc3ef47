// Package archtest has tests of this repository's architecture: which package may import which, and
// constructs that no package may contain. It has no other code, and nothing imports it.
//
// The import table is in rules_test.go, one row per package. A new package fails the test until it
// has a row. So a reviewer decides its imports, not the first import that compiles. The other rules
// stand beside the code that checks them, in forbid_test.go and vars_test.go.
//
// All files are read, with any build constraints and in nested modules too. Test files may import
// and do anything, and so may files that are only built by hand (//go:build ignore).
//
// The checks are tested against the synthetic module in testdata/module. They must report each line
// there that ends in a want comment, and no other.
package archtest

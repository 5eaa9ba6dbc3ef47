// Package archtest tests this repository's architecture: which package may import which, and which
// constructs are forbidden. It has no other code, and no package imports it.
//
// The import table is in rules_test.go, one row per package. A new package fails the test until it
// has a row, so that a reviewer decides its imports. The other rules are beside the code that
// checks them, in forbid_test.go and vars_test.go.
//
// The tests read all files, whatever their build constraints, including those of nested modules.
// Test files, and files with the constraint //go:build ignore, are exempt.
//
// A synthetic module in testdata/module tests the checks. They must report each of its lines that
// ends in a want comment, and no other line.
package archtest

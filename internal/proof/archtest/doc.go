// Package archtest tests this repository's architecture: which package may import which, and which
// constructs are forbidden. It has no other code, and no package imports it.
//
// The import table is in rules_test.go, one row per package. A new package fails the test until it
// has a row. So a reviewer decides its imports. The other rules are beside the code that checks
// them, in forbid_test.go and vars_test.go.
//
// The tests read all files, whatever their build constraints, also in nested modules. Test files,
// and files with the constraint //go:build ignore, are exempt.
//
// A synthetic module in testdata/module tests the checks: they must report each line there that
// ends in a want comment, and no other line.
package archtest

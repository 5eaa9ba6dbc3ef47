// Package archtest tests this repository's architecture: which packages a package may import, and
// which constructs are forbidden. Package archtest contains only tests, and no package imports it.
//
// The import table in rules_test.go has one row per package. If a package has no row, the test
// fails. Therefore, a reviewer must approve the imports of each new package. The other rules are
// next to the code that checks them, in forbid_test.go and vars_test.go.
//
// The tests read the files of all modules, regardless of build constraints. Test files, and files
// with the constraint //go:build ignore, are exempt.
//
// The module in testdata/module shows that the checks work. In testdata/module, the checks must
// report every line that ends in a want comment, and no other line.
package archtest

// Package doctest tests the documentation. It compiles and runs every block of Go in README.md and
// docs, as in a user's module, and compares its output with the block that follows. A block that
// needs a server runs if the machine has it.
//
// Other tests compare pages with the code that they describe: rules, keys of the configuration,
// errors, log lines, limits and versions. -update writes the generated parts.
//
// A whole program is followed by a block of a terminal, ```console; session_test.go describes its
// content. A part of a program has a wrapper in wrappers_test.go, which checks the promises of the
// text.
package doctest

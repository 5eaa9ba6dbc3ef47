// Package doctest holds the Go in README.md and docs against the text: every block is
// compiled, as a user's module would compile it, and run, and its output is compared
// with the block that follows. Blocks that need a server run where the machine has it.
//
// Other tests compare pages with the code that they describe: rules, keys of the
// configuration, errors, log lines, limits and versions; -update writes what is generated.
//
// A whole program is followed by a block of a terminal, ```console; session_test.go
// describes its content. A part of a program has a wrapper in wrappers_test.go, which
// checks the promises of the text.
package doctest

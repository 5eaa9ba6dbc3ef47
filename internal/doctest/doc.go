// Package doctest holds the Go in README.md and docs against what the text says: every
// block is compiled, as a user's module would compile it, and run, and what it prints is
// compared with the block that follows. Blocks that need a server run where the machine
// has it.
//
// A whole program is followed by a block of a terminal, ```console; session_test.go says
// what may be in it. A part of a program has a wrapper in wrappers_test.go, which checks
// what the text promises.
package doctest

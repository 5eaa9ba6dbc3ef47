// Package doctest tests the documentation. It compiles and runs every Go block in README.md and
// docs, as in a user's module, and compares its output with the block that follows. If a block
// needs a server, it runs only on a machine that has the server.
//
// Other tests compare pages with the code that they describe: rules, keys of the configuration,
// errors, log lines, limits and versions. The flag -update writes the generated parts.
//
// A whole program is followed by a terminal session in a ```console block, which session_test.go
// describes. Each fragment of a program has a wrapper in wrappers_test.go, which checks what the
// text promises.
package doctest

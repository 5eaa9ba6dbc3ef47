// Package doctest tests the documentation. Tests compile and run every Go block in README.md and
// docs, as part of a user's module. The tests compare the output with the next block on the page. A
// Go block that needs a server runs only on machines that have the server.
//
// Other tests check that pages agree with the code about rules, configuration keys, errors, log
// lines, limits and versions. With the flag -update, the tests write the generated parts of the
// pages.
//
// A page shows the terminal session of a complete program in a ```console block after the program
// (see session_test.go). For each program fragment, a wrapper in wrappers_test.go checks the claims
// of the page.
package doctest

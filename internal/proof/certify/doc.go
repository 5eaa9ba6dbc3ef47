// Package certify implements the command "tenure certify". The command opens a running store, runs
// the conformance suite, the system suite and its control, and writes a report.
//
// Each run uses a namespace with a random name. Each case and each seed uses a namespace below the
// run's namespace. After the run, this package deletes the records of these namespaces if the
// store's user may delete them.
//
// The package is separate from the command, so tests can certify faulty stores. The library does
// not import this package.
//
// # What it does not do
//
// The package causes only faults that need no permissions on the server. It kills and stops
// processes that it started, loses and delays their requests, and cuts their connections with a
// proxy. Conformance cases that need more permissions are skipped. The report lists each skipped
// case with the reason.
package certify

// Package certify is the logic of the command "tenure certify". On a running store, it tests the
// opening, runs the conformance suite, the system suite and its control, and writes a report.
//
// Each run has its own namespace with a random name, and each case and each seed has a namespace
// below it. Afterwards, this package deletes their records, if its user has the right to do so.
//
// The package is separate from the command, so that its tests can certify faulty stores with their
// own openers. The library does not import it.
//
// # What it does not do
//
// The package causes only faults that need no rights over the server. It kills and stops its own
// processes, loses and delays their requests, and cuts their connections with its own proxy. It
// skips cases of the conformance suite that need more rights, and the report lists them with the
// reason.
package certify

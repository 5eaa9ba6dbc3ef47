// Package certify has the logic of the command tenure certify. On a running store it plays the
// opening, the conformance suite, the system suite and its control, and writes a report.
//
// Each run has its own namespace with a random name, and each case and each seed one below it.
// Afterwards this package deletes their records, if its user may.
//
// The package is separate from the command, so that its tests can certify lying stores with their
// own openers. The library does not import it.
//
// # What it does not do
//
// It causes only faults that need no rights over the server. It kills and stops its own processes,
// loses and delays their requests, and cuts them off with its own proxy. Cases of the conformance
// suite that need more are skipped, and the report lists them with the reason.
package certify

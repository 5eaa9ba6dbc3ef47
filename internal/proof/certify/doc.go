// Package certify has the logic of the command tenure certify: the opening, the conformance
// suite, the system suite and its control, on a store that runs already, with a report.
//
// Each run has its own namespace with a random name, and each case and each seed one below it.
// Afterwards a connection of this package deletes their records, as far as its user may.
//
// The package stands apart from the command so that its tests can certify stores that lie, by
// openers of theirs. The library does not import it.
//
// # What it does not do
//
// It causes only the faults that need no rights over the server: it kills and stops its own
// processes, loses and delays their requests, and cuts them off by a proxy of its own. Cases of
// the conformance suite that need more are skipped, and the report lists them with the reason.
package certify

// Package sqlfault puts a faulty network between an SQL backend and its store, and counts its
// calls. It is for tests.
//
// It acts on whole transactions. A lost request is a transaction that never began. A lost reply is
// one that ended without an answer. For breaks in the middle of one there is a proxy before a real
// server ([CheckNetwork]). The package also has the shared steps of the server backends' tests, and
// the shared parts of their benchmarks.
package sqlfault

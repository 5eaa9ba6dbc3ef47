// Package sqlfault simulates a faulty network between an SQL backend and its store, for tests, and
// counts the backend's calls.
//
// Faults affect whole transactions. If the request for a transaction is lost, the transaction never
// begins. If only the reply is lost, the transaction runs, but the caller gets no answer. To break
// the connection in the middle of a transaction, use a proxy in front of a real server
// ([CheckNetwork]). The package also contains code that the tests and benchmarks of server backends
// share.
package sqlfault

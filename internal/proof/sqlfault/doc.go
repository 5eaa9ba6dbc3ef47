// Package sqlfault is for tests. It puts a faulty network between an SQL backend and its store, and
// counts the backend's calls.
//
// It acts on whole transactions. If a request is lost, its transaction never began. If a reply is
// lost, its transaction ended without an answer. To break the connection in the middle of a
// transaction, use a proxy in front of a real server ([CheckNetwork]). The package also has the
// parts that the server backends' tests and benchmarks share.
package sqlfault

// Package sqlfault puts a faulty network between an SQL backend and its store, and
// counts the calls that cross it. It is for tests.
//
// It acts on whole transactions: a request lost is a transaction that never began, a
// reply lost one that ended unheard. Breaks in the middle of one are left to a proxy
// before a real server ([CheckNetwork]). The steps of the server backends' own tests
// are here, too, and the common parts of their benchmarks.
package sqlfault

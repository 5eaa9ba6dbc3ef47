// Package sqlfault puts a faulty network between an SQL backend and its store, and
// counts what crosses it. It is for tests.
//
// It acts on whole transactions: a request lost is a transaction that never began,
// a reply lost one that ended unheard. What breaks in the middle of one is left to
// a proxy before a real server ([CheckNetwork]). The steps that the server backends'
// own tests are made of are here, too, and what their benchmarks share.
package sqlfault

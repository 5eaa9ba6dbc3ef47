// Command bench measures Tenure beside what a user of each store would pick today, on
// the same servers, in alternating rounds of one run.
//
//	go run . -update ../docs/benchmarks.md
//	go run . -stores etcd,postgres -rows acquire1000,release -rounds 3
//	go run . -quick
//
// It prints a table for each store in Markdown. With -update it writes them, and a
// chart of each kind of row, to the document between its markers.
//
//	-stores  etcd, zookeeper, consul, postgres, mariadb, sqlite, redis. Default: all.
//	-rows    rows by name; -rows help lists them. Default: all.
//	-rounds  rounds of each row, after one that does not count. Default: 5.
//	-quick   small sizes and one round, to see that all works: its figures mean nothing.
//	-update  the document; charts go into the folder beside it that has its name.
//
// What tracing costs is measured by a test, in 9 minutes:
//
//	go test -run TestTraceCost -v . -args -slices=125
//
// Servers are started by package internal/proof/servers, for each row anew; a server that
// cannot be had is a table that says so. A contender implements member, in one file for
// each store, and rows.go measures through that alone. A member that is to be killed is
// this program again, as a process of its own.
package main

// Command bench measures Tenure beside what a user of each store would pick today, on the same
// servers, in alternating rounds of one run.
//
//	go run . -update ../docs/internals/benchmarks.md
//	go run . -stores etcd,postgres -rows acquire1000,release -rounds 3
//	go run . -quick
//
// It prints a table for each store in Markdown. With -update it writes the tables, and a chart of
// each kind of row, to the document between its markers.
//
//	-stores  etcd, zookeeper, consul, postgres, mariadb, sqlite, redis. Default: all.
//	-rows    rows by name; -rows help lists them. Default: all.
//	-rounds  rounds of each row, after one that does not count. Default: 5.
//	-quick   small sizes and one round, to see that all works: its figures mean nothing.
//	-update  the document; charts go into the folder beside it that has its name.
//
// A test measures the cost of tracing, in 9 minutes:
//
//	go test -run TestTraceCost -v . -args -slices=125
//
// Package internal/proof/servers starts new servers for each row. If a server is unavailable, its
// table says so. A contender implements member, in one file for each store, and rows.go measures
// only through that. A member that will be killed is this program again, as a separate process.
package main

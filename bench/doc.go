// Command bench compares Tenure with the alternatives that each store's users choose today. All
// contenders are measured on the same servers, in alternating rounds of one run.
//
//	go run . -update ../docs/internals/benchmarks.md
//	go run . -stores etcd,postgres -rows acquire1000,release -rounds 3
//	go run . -quick
//
// Command bench prints a Markdown table for each store. With -update, it also writes the tables
// between the markers in the document, and draws a chart for each kind of row.
//
//	-stores  etcd, zookeeper, consul, postgres, mariadb, sqlite, redis. Default: all.
//	-rows    rows by name; -rows help lists them. Default: all.
//	-rounds  rounds of each row, after an uncounted round. Default: 5.
//	-quick   small sizes and one round, to check that everything works. The figures mean nothing.
//	-update  the document. Charts go into the adjacent folder with the document's name.
//
// A separate 9-minute test measures the cost of tracing:
//
//	go test -run TestTraceCost -v . -args -slices=125
//
// Each row uses new servers. A store's table shows whether its server was unavailable. The
// contenders for each store are in one file. Each contender implements the member interface, and
// rows.go measures only through that interface. A member that is to be killed runs in a separate
// process of this program.
package main

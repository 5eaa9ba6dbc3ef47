// Package sqlite keeps Tenure's leases in an SQLite database: leader election,
// fencing and decision logs for several processes on one host, with nothing to
// run. It needs no C compiler.
package sqlite

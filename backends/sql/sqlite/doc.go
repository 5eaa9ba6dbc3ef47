// Package sqlite keeps Tenure's leases in an SQLite database: leader election, fencing and
// decision logs for several processes on one host. It needs no server at run time and no C
// compiler at build time. It is the embedded default.
//
//	b, err := sqlite.Open(ctx, "/var/lib/orders/tenure.db", "orders", nil)
//
// # Two files
//
// The data file holds leases, items and decision logs, and may hold your own tables;
// [Backend.FenceTx] checks a lease in your transaction on them. The members' file beside it, named
// with "-members" at the end, holds the members. Heartbeats write only there, so they do not wait
// for an application's commit. No transaction writes both files. A claim locks the data file for
// writing, then the members' file, so that no member joins, leaves or is evicted during the claim.
// The two files carry the same identity. Back them up and restore them together, or restore the
// data file alone and open it once with [Options].NewRoster.
//
// Each of the two has SQLite's -wal and -shm files beside it. Two small files of Tenure need no
// backup. Through "-hints", processes notify each other of writes, and "-tenure_transactions"
// holds the number of the newest transaction.
//
// Every process must use the same path on the same host. Every connection sets WAL mode and
// full synchronisation. So an acknowledged write survives a crash of the machine if its disk
// keeps the data that it acknowledged. Heartbeats are not flushed, because all members end with
// the machine.
//
// If a file that a process has open, or its -wal or -shm file, is removed, replaced or damaged,
// the process stops with ErrStoreChanged. Open refuses a database with fewer transactions than
// the recorded number. After a -wal or -shm file was removed, end every process that has the
// database open before another process opens it. Close writes the log back, or returns an
// error.
//
// Open with nil options creates missing files, with mode 0600, unlike the backends of servers
// ([Options].Create). If processes of several users share a database, create both beforehand, empty
// and with the mode that they need.
//
// # Tables
//
// Everything can be queried. The files under schema/ document each column. These queries return
// the leases that were not given back, and a shard's log:
//
//	SELECT shard, session, token FROM tenure_shards WHERE namespace = 'orders' AND session <> '';
//	SELECT seq, token, payload FROM tenure_entries WHERE namespace = 'orders' AND shard = 's1' ORDER BY seq;
//
// In the members' file:
//
//	SELECT node, session, ttl_ns / 1e9 AS ttl_seconds FROM tenure_members WHERE namespace = 'orders';
//
// Do not change anything by hand. A program that has a Backend open must open and close the
// files only through SQLite, because anything else drops the process's locks.
//
// # What it does not do
//
//   - It does not reach beyond one host, because SQLite's locks and its shared memory do not work
//     over network file systems.
//   - It does not push changes. A process learns of other processes' writes when the file
//     system reports a change of the "-hints" file (inotify, kqueue, ReadDirectoryChangesW).
//     Otherwise, it learns of them within Options.PollPeriod or Options.IdlePollPeriod.
//   - It cannot help if a process is stopped (SIGSTOP, a frozen container) inside a write.
//     SQLite has one writer, so all writes to that file wait until the process continues or is
//     killed, each at most until its context ends. A process stopped inside a claim holds both
//     files, so that heartbeats wait as well. Tenure's transactions take milliseconds. Keep
//     your own short. See docs/internals/backends/sqlite.md for the odds.
//   - If an older copy replaces a data or members' file while no process is running, only the
//     file that counts the transactions shows this. If that file is also replaced or removed,
//     Tenure does not notice. After a restore, raise the floor ([Backend.RaiseFloor]) above
//     every token ever granted.
package sqlite

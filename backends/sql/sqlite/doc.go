// Package sqlite is a backend for SQLite, for several processes on one host. It needs no server at
// run time and no C compiler at build time.
//
//	b, err := sqlite.Open(ctx, "/var/lib/orders/tenure.db", "orders", nil)
//
// # Two files
//
// The data file contains leases, items and decision logs, and may contain your own tables.
// [Backend.FenceTx] checks a lease in your transaction on these tables. The members' file beside
// it, with "-members" at the end of its name, contains the members. Heartbeats write only to the
// members' file, so that they do not wait for an application's commit. No transaction writes both
// files. A claim locks the data file for writing, and then the members' file, so that no member
// joins, leaves or is evicted during the claim. The two files contain the same identity. Back them
// up and restore them together, or restore the data file alone and open it once with
// [Options].NewRoster.
//
// Each of the two files has SQLite's -wal and -shm files beside it. Two other small files need no
// backup: through the "-hints" file, processes notify each other of writes, and the
// "-tenure_transactions" file contains the number of the newest transaction.
//
// Every process must use the same path on the same host. Every connection sets WAL mode and full
// synchronisation. Therefore, an acknowledged write survives a crash of the machine if the disk
// keeps the data that it acknowledged. Heartbeats are not flushed to disk, because a crash of the
// machine ends all members.
//
// If a file that a process has open, or its -wal or -shm file, is removed, replaced or damaged, the
// process stops with ErrStoreChanged. Open refuses a database with fewer transactions than the
// recorded number. After a -wal or -shm file was removed, end every process that has the database
// open before another process opens it. In this case, Close writes the log back, or returns an
// error.
//
// Open with nil options creates missing files, with mode 0600, unlike the backends of servers
// ([Options].Create). If processes of several users share a database, create both beforehand, empty
// and with the mode that they need.
//
// # Tables
//
// All tables can be queried. The files under schema/ document each column. These queries return the
// leases that were not given back, and a shard's log:
//
//	SELECT shard, session, token FROM tenure_shards WHERE namespace = 'orders' AND session <> '';
//	SELECT seq, token, payload FROM tenure_entries WHERE namespace = 'orders' AND shard = 's1' ORDER BY seq;
//
// In the members' file:
//
//	SELECT node, session, ttl_ns / 1e9 AS ttl_seconds FROM tenure_members WHERE namespace = 'orders';
//
// Do not change the tables by hand. A program that has a Backend open must open and close the files
// only through SQLite, because opening and closing them in any other way drops the process's locks.
//
// # What it does not do
//
//   - It does not reach beyond one host, because SQLite's locks and its shared memory do not work
//     over network file systems.
//   - It does not push changes. A process learns of other processes' writes when the file system
//     reports a change of the "-hints" file (inotify, kqueue, ReadDirectoryChangesW), and otherwise
//     within Options.PollPeriod or Options.IdlePollPeriod.
//   - It cannot continue if a process is stopped (SIGSTOP, a frozen container) inside a write.
//     SQLite has one writer, so all writes to that file wait until the process continues or is
//     killed, each at most until its context ends. A process stopped inside a claim locks both
//     files, so that heartbeats wait as well. Tenure's transactions take milliseconds. Keep your
//     own transactions short. See docs/internals/backends/sqlite.md for how likely this is.
//   - If an older copy replaces a data or members' file while no process is running, only the
//     "-tenure_transactions" file shows this. If that file is also replaced or removed, Tenure does
//     not notice the change. After a restore, raise the floor ([Backend.RaiseFloor]) above every
//     token ever granted.
package sqlite

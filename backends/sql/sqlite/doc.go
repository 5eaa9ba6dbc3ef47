// Package sqlite is a backend for SQLite. It serves several processes on one host, and needs no
// server at run time and no C compiler at build time.
//
//	b, err := sqlite.Open(ctx, "/var/lib/orders/tenure.db", "orders", nil)
//
// # Two files
//
// The data file contains leases, items and decision logs, and may contain your own tables.
// [Backend.FenceTx] checks a lease in your transaction on these tables. A second file in the same
// directory, the members' file, contains the members. Its name ends in "-members". Heartbeats write
// only to the members' file, so they never wait for an application's commit. No transaction writes
// to both files. A claim locks the data file for writing, and then the members' file, so that no
// member joins, leaves or is evicted during the claim. The two files contain the same identity.
// Back up and restore both files together. If you restore only the data file, open it once with
// [Options].NewRoster.
//
// SQLite keeps a -wal and a -shm file next to each of the two files. Two more small files need no
// backup. Processes notify each other of writes through the "-hints" file. The
// "-tenure_transactions" file contains the number of the newest transaction.
//
// Every process must use the same path on the same host. Every connection sets WAL mode and, except
// for heartbeats, full synchronization. Therefore, an acknowledged write survives a crash of the
// machine if the disk keeps all data that it acknowledged. Heartbeats are not flushed to disk,
// because a crash of the machine ends all members.
//
// If an open file, or its -wal or -shm file, is removed, replaced or damaged, every process that
// has the file open stops with ErrStoreChanged. Open refuses a database that has fewer transactions
// than the recorded number. If a -wal or -shm file was removed, stop every process that has the
// database open before another process opens it. Close then writes the log back or returns an
// error.
//
// Unlike the backends for servers, Open creates missing files by default, with mode 0600 (see
// [Options].Create). If processes of several users share a database, create both files beforehand,
// empty and with the necessary mode.
//
// # Tables
//
// You may query all tables. The files under schema/ document the columns. These queries return the
// leases that were not released, and a shard's log:
//
//	SELECT shard, session, token FROM tenure_shards WHERE namespace = 'orders' AND session <> '';
//	SELECT seq, token, payload FROM tenure_entries WHERE namespace = 'orders' AND shard = 's1' ORDER BY seq;
//
// In the members' file:
//
//	SELECT node, session, ttl_ns / 1e9 AS ttl_seconds FROM tenure_members WHERE namespace = 'orders';
//
// Do not change the tables by hand. A program with an open Backend must open and close the files
// only through SQLite. If other code in the process opens and closes a file, the process loses its
// locks on that file.
//
// # What it does not do
//
//   - The backend does not work across hosts, because SQLite's locks and shared memory do not work
//     on network file systems.
//   - The backend does not push changes. A process learns of other processes' writes when the file
//     system reports a change of the "-hints" file (inotify, kqueue, ReadDirectoryChangesW).
//     Without such reports, a process learns of these writes within Options.PollPeriod or
//     Options.IdlePollPeriod.
//   - SQLite has one writer per file. If a process is stopped during a write (SIGSTOP, a frozen
//     container), no other process can write. Other writes to that file wait until the stopped
//     process resumes or is killed, or until their context ends. A process that is stopped during a
//     claim keeps both files locked, so heartbeats also wait. Tenure's transactions take
//     milliseconds. Keep your own transactions short. docs/internals/backends/sqlite.md explains
//     how likely such stops are.
//   - If a data or members' file is replaced by an older copy while no process is running, only the
//     "-tenure_transactions" file reveals the replacement. If "-tenure_transactions" is also
//     replaced or removed, Tenure does not detect the older copy. After a restore, raise the floor
//     ([Backend.RaiseFloor]) above every token ever granted.
package sqlite

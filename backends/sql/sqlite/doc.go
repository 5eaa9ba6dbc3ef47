// Package sqlite keeps Tenure's leases in an SQLite database: leader election,
// fencing and decision logs for several processes on one host, with no server to
// run and no C compiler to build. It is the embedded default.
//
//	b, err := sqlite.Open(ctx, "/var/lib/orders/tenure.db", "orders", nil)
//
// # Two files
//
// The data file holds leases, items and decision logs, and may hold tables of
// your own: [Backend.FenceTx] checks a lease in your transaction on them. The
// members' file beside it, named with "-members" at the end, holds who is alive.
// Heartbeats write only there, so they do not wait for an application's commit.
// No transaction writes both files. A claim first takes the write lock of the data file,
// then that of the members' file, so that nobody joins, leaves or is evicted while it is
// decided. The two files carry the same identity. Back them up and restore them together, or
// restore the data file alone and open it once with [Options].NewRoster.
//
// Each of the two has SQLite's -wal and -shm files beside it. Two small files of Tenure's
// need no backup: "-hints", by which processes notify each other of writes, and
// "-tenure_transactions", which has the number of the newest transaction.
//
// Every process must use the same path on the same host. Every connection sets WAL mode and
// full synchronisation: an acknowledged write survives a crash of the machine, as far as
// its disk keeps what it acknowledged. (Heartbeats are not flushed: all members end with
// the machine.)
//
// Processes stop with ErrStoreChanged when a file that they have open is removed, replaced or
// damaged, its -wal or -shm file included. Open refuses a database that has fewer
// transactions than the number beside it says. After a -wal or -shm file was removed, end every
// process that has the database open before another one opens it: Close writes the log
// back, or says that it could not.
//
// Open with nil options creates the files that are missing, with mode 0600, unlike the
// backends of servers ([Options].Create). Where processes of several users share a database,
// create both beforehand, empty and with the mode that they need.
//
// # Tables
//
// Everything can be queried; the files under schema/ document each column. The leases that
// were not given back, and a shard's log:
//
//	SELECT shard, session, token FROM tenure_shards WHERE namespace = 'orders' AND session <> '';
//	SELECT seq, token, payload FROM tenure_entries WHERE namespace = 'orders' AND shard = 's1' ORDER BY seq;
//
// In the members' file:
//
//	SELECT node, session, ttl_ns / 1e9 AS ttl_seconds FROM tenure_members WHERE namespace = 'orders';
//
// Change nothing by hand. A program that has a Backend open must not open and
// close the files other than through SQLite: that drops the process's locks.
//
// # What it does not do
//
//   - It does not reach beyond one host: SQLite's locks and its shared memory do
//     not work over network file systems.
//   - It does not push by itself. A process learns of the writes of others when the file
//     system reports a change of the "-hints" file (inotify, kqueue, ReadDirectoryChangesW),
//     and within Options.PollPeriod or Options.IdlePollPeriod where it does not.
//   - It cannot help against a process that is stopped (SIGSTOP, a frozen
//     container) inside a write. SQLite has one writer, so everyone's writes to that
//     file wait, each until its context ends, until that process goes on or is killed. A process
//     that is stopped inside a claim holds both files, so that heartbeats wait as well. Tenure's
//     transactions take milliseconds; keep your own short. docs/backends/sqlite.md has the odds.
//   - It does not notice a members' or data file that was exchanged for an older
//     copy while no process was running, if the file beside it that counts its
//     transactions was exchanged as well, or removed. After a restore, raise the
//     floor ([Backend.RaiseFloor]) above every token ever granted.
package sqlite

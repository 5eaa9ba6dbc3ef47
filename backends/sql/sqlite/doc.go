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
// Heartbeats write only there, so they never wait for an application's commit.
// No transaction writes both files. A claim writes the data file while it holds
// the members' file's write lock, so that nobody joins, leaves or is evicted
// while it is decided. The two carry the same identity; back them up and restore
// them together, or restore the data file alone and open once with
// [Options].NewRoster.
//
// Every process must use the same path on the same host. Both files are in WAL
// mode with full synchronisation, which every connection is asked for: an
// acknowledged write survives a crash of the machine, as far as its disk keeps what
// it acknowledged. Heartbeats need not: all members end with the machine. A file, its
// -wal or its -shm file that is removed, replaced or damaged under a running process
// is ErrStoreChanged (I1), and so is, when it is opened, one that lacks transactions
// that it had, by a count of them in a file beside it, with the table's name,
// "-tenure_transactions", at its end. After a -wal or a -shm file was removed, nobody opens
// the database until every process that had it open has ended: Close writes the log back,
// or says that it could not.
//
// Files that are missing are created with mode 0600. Where processes of several users
// share a database, create both beforehand, empty and with the mode that they need.
//
// # Tables
//
// Everything can be queried; the files under schema/ document each column. The
// current leases, and a shard's log:
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
//   - It does not push by itself. Changes by other processes are seen when the file
//     system tells of their writes to a third file, with "-hints" at its end, and within
//     Options.PollPeriod or Options.IdlePollPeriod where it does not.
//   - It cannot help against a process that is stopped (SIGSTOP, a frozen
//     container) inside a write: SQLite has one writer, so everyone's writes to
//     that file wait, each until its context ends, until the process goes on or is
//     killed. Stopped inside a claim it holds both files, so that heartbeats wait as
//     well; and claims that wait for a process stopped inside a write of the members'
//     file hold the data file. Tenure's transactions take milliseconds; keep your own
//     short.
//   - It does not notice a members' or data file that was exchanged for an older
//     copy while no process was running, if the file beside it that counts its
//     transactions was exchanged as well, or removed. After a restore, raise the
//     floor ([Backend.RaiseFloor]) above every token ever granted.
package sqlite

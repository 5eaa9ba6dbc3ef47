// Package mysql is a backend for MariaDB and MySQL. It keeps leases and decision logs alongside the
// application's own tables.
//
//	err := mysql.Migrate(ctx, ownerDSN, nil) // once per release, by the user who may create tables
//	b, err := mysql.Open(ctx, "app:secret@tcp(db.example:3306)/app?tls=true", "orders", nil)
//
// The package requires MariaDB 10.6 or later, or MySQL 8. It is tested with MariaDB 10.11,
// including a Galera cluster. docs/backends/mysql.md explains how to set up the two users and what
// to monitor.
//
// # Fencing your own tables
//
// [Backend.FenceTx] checks a lease in your transaction on the same server, at any isolation level.
// Your writes take effect only if the lease is the shard's current grant when the transaction
// commits.
//
// # Connections
//
// Heartbeats, reads and the application's writes use separate connections, so they never wait for
// one another (E4). The backend opens at most [Options].MaxConns connections for writes, six for
// other calls, and three for pings after trust lapses. Cancelling a statement closes its
// connection. The backend polls for changes by other processes, and polls more often after a change
// (see [Options].IdlePollPeriod).
//
// # Tables
//
// You may query all tables. schema/0001_tables.sql documents their columns. These queries return
// the current leases and a shard's log:
//
//	SELECT shard, session, token FROM tenure_shards WHERE namespace = 'orders' AND session <> '';
//	SELECT seq, token, payload FROM tenure_entries WHERE namespace = 'orders' AND shard = 's1' ORDER BY seq;
//
// Do not change the tables by hand.
//
// # What it does not do
//
//   - If a promoted replica lacks the last grants and commits, the backend does not restore them.
//     Even so, no token is granted twice. The namespace records the server_id, and the first call
//     under a different server_id raises all tokens (I2). Members continue and report the
//     acknowledged commits that were lost.
//   - The backend does not detect an older copy of the data under the same server_id. After a
//     restore, raise the floor ([Backend.RaiseFloor]).
//   - The backend does not support group replication with several primaries, and Open refuses such
//     a server. On Galera, processes may use different nodes. See docs/backends/mysql.md for what
//     your fenced transactions must do there.
//   - The backend does not measure time or compare the clocks of clients or servers.
//   - The backend does not end an application's open transaction. While that transaction holds a
//     fence, no process can claim the fence's shard. Set MariaDB's idle_transaction_timeout on your
//     connections to a few seconds.
package mysql

// Package mysql keeps Tenure's leases in a MariaDB or MySQL database: leader
// election, fencing and decision logs beside the application's own tables.
//
//	err := mysql.Migrate(ctx, ownerDSN, nil) // once per release, by the user who may create tables
//	b, err := mysql.Open(ctx, "app:secret@tcp(db.example:3306)/app?tls=true", "orders", nil)
//
// The package needs MariaDB 10.6 or later, or MySQL 8. It is tested with MariaDB 10.11,
// including a Galera cluster. See docs/backends/mysql.md for the setup of the two users, and
// for what to watch.
//
// # Fencing your own tables
//
// [Backend.FenceTx] proves a lease in your transaction on the same server, at any isolation
// level. The transaction's writes take effect if and only if the lease is the shard's current
// grant at the commit.
//
// # Connections
//
// Heartbeats, reads and the application's writes each have their own connections, so that none
// waits for another (E4). There are at most [Options].MaxConns for writes and six more and,
// after a lapse of trust, three for pings. A cancelled statement costs its connection. The
// backend polls for changes of other processes, more often after a change: see
// [Options].IdlePollPeriod.
//
// # Tables
//
// Everything can be queried. See schema/0001_tables.sql for each column. These queries return
// the current leases and a shard's log:
//
//	SELECT shard, session, token FROM tenure_shards WHERE namespace = 'orders' AND session <> '';
//	SELECT seq, token, payload FROM tenure_entries WHERE namespace = 'orders' AND shard = 's1' ORDER BY seq;
//
// Do not change anything by hand.
//
// # What it does not do
//
//   - It does not restore the last grants and commits if a promoted replica lacks them. Even
//     so, no token is granted twice, because the namespace records the server_id, and the first
//     call under a different one raises all tokens (I2). Members continue, and report the
//     acknowledged commits that are gone.
//   - It does not notice an older copy that runs under the same server_id. After a restore,
//     raise the floor ([Backend.RaiseFloor]).
//   - It does not work on group replication with several primaries, which Open refuses. On
//     Galera, processes may use different nodes. See docs/backends/mysql.md for what your
//     fenced transactions must do there.
//   - It measures no time, and compares no clock of the client or the server.
//   - It does not end an application's open transaction. While that transaction holds a fence,
//     its shard cannot be taken. Set MariaDB's idle_transaction_timeout on your connections to
//     a few seconds.
package mysql

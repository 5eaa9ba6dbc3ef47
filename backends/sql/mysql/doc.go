// Package mysql keeps Tenure's leases in a MariaDB or MySQL database: leader
// election, fencing and decision logs beside the application's own tables.
//
//	err := mysql.Migrate(ctx, ownerDSN, nil) // once per release, by the user who may create tables
//	b, err := mysql.Open(ctx, "app:secret@tcp(db.example:3306)/app?tls=true", "orders", nil)
//
// MariaDB 10.6 or later and MySQL 8; tested with MariaDB 10.11, also as a Galera cluster.
// docs/backends/mysql.md has the recipe for the two users, and what to watch.
//
// # Fencing your own tables
//
// [Backend.FenceTx] proves a lease in your transaction on the same server, at any
// isolation level. Its writes take effect if and only if the lease is the shard's
// current grant when it commits.
//
// # Connections
//
// Heartbeats, reads and the application's writes each have their own connections, so
// that none waits for another (E4): at most [Options].MaxConns for writes, and six more;
// after a lapse of trust three for pings. A cancelled statement costs its connection. The
// backend polls for changes of other processes, more often after a change: see
// [Options].IdlePollPeriod.
//
// # Tables
//
// Everything can be queried; schema/0001_tables.sql documents each column. The
// current leases, and a shard's log:
//
//	SELECT shard, session, token FROM tenure_shards WHERE namespace = 'orders' AND session <> '';
//	SELECT seq, token, payload FROM tenure_entries WHERE namespace = 'orders' AND shard = 's1' ORDER BY seq;
//
// Change nothing by hand.
//
// # What it does not do
//
//   - It does not restore the last grants and commits if a promoted replica lacks them.
//     No token is granted twice nevertheless, because the namespace records the
//     server_id, and the first call under another one raises all tokens (I2). Members
//     continue, and report the acknowledged commits that are gone.
//   - It does not notice an older copy that runs under the same server_id. Raise the
//     floor ([Backend.RaiseFloor]) after a restore.
//   - It does not work on group replication with several primaries, which Open refuses.
//     On Galera processes may use different nodes; docs/backends/mysql.md lists the
//     duties of your fenced transactions there.
//   - It measures no time, and compares no clock of the client or the server.
//   - It does not end an application's open transaction. While that holds a fence, its
//     shard cannot be taken. Set MariaDB's idle_transaction_timeout on your connections
//     to some seconds.
package mysql

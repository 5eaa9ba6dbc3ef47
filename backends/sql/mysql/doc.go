// Package mysql keeps Tenure's leases in a MariaDB or MySQL database: leader
// election, fencing and decision logs beside the application's own tables.
//
//	err := mysql.Migrate(ctx, ownerDSN, nil) // once per release, by the user who may create tables
//	b, err := mysql.Open(ctx, "app:secret@tcp(db.example:3306)/app?tls=true", "orders", nil)
//
// MariaDB 10.6 or later and MySQL 8; tested with MariaDB 10.11,
// also as a cluster of Galera.
// docs/backends/mysql.md has the recipe for the two users, and what to watch.
//
// # Fencing your own tables
//
// [Backend.FenceTx] proves a lease in a transaction of yours on the same server,
// at any isolation level: what it writes takes effect if and only if the lease is
// the shard's current grant when it commits.
//
// # Connections
//
// Heartbeats, reads and the application's writes each have connections of their
// own, so that none waits for another (E4): at most [Options].MaxConns for writes,
// and six more; after a lapse of trust three for pings. A statement that is cancelled costs its connection. Changes of
// other processes are polled, often while something is under way: see
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
//   - It does not bring back what a replica lacks when it is promoted: the last grants
//     and commits are lost. No token is granted twice nevertheless: the namespace
//     records the server_id, and the first call under another one raises all tokens
//     (I2). Members go on, and report commits that were acknowledged and are gone.
//   - It does not notice an older copy that runs under the same server_id. Raise the
//     floor ([Backend.RaiseFloor]) after a restore.
//   - It does not work on group replication with several primaries, which Open refuses.
//     On Galera processes may use different nodes: docs/backends/mysql.md says what
//     your fenced transactions have to do there.
//   - It does not keep time, and compares no clock, of the client or the server.
//   - It does not help against a transaction of the application that is left open:
//     one that holds a fence keeps its shard from being taken. Set MariaDB's
//     idle_transaction_timeout on your connections to some seconds.
package mysql

// Package postgres keeps Tenure's leases in a PostgreSQL database: leader
// election, fencing and decision logs beside the application's own tables.
//
//	err := postgres.Migrate(ctx, ownerDSN, nil) // once per release, by the role that owns the tables
//	b, err := postgres.Open(ctx, dsn, "orders", nil)
//
// The package needs PostgreSQL 13 or later, and is tested with 15. See
// docs/backends/postgres.md for the setup of the two roles, and for what to watch.
//
// # Fencing your own tables
//
// [Backend.FenceTx] (database/sql) and [Backend.FencePgx] (pgx) prove a lease in your
// transaction on the same database. The transaction's writes take effect if and only if the
// lease is the shard's current grant at the commit.
//
// # Connections
//
// Heartbeats, reads and the application's writes each have their own connections, so that none
// waits for another (E4). There are at most [Options].MaxConns for writes and six more and,
// after a lapse of trust, three for pings. A cancelled statement costs its connection. One more
// connection listens for changes, unless Options.Pooler or NoNotify is set.
//
// Behind a pooler in transaction mode, such as PgBouncer, set Options.Pooler. Then
// nothing depends on the state of a connection, and the backend polls for changes.
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
//   - It does not restore the last grants and commits if a promoted asynchronous standby lacks
//     them. Even so, no token is granted twice. The namespace records the server's system
//     identifier and timeline, and the first call under another pair raises all tokens (I2).
//     Members continue, and report the acknowledged commits that are gone. Synchronous
//     replication loses none.
//   - It does not notice a loss within one timeline. Causes are a base backup started without
//     recovery.signal, a snapshot of the disk, and fsync = off. After such a loss, raise the
//     floor ([Backend.RaiseFloor]). Open refuses synchronous_commit = off.
//   - It measures no time, and compares no clock of the client or the server.
//   - It does not end an application's open transaction. While that transaction holds a fence,
//     its shard cannot be taken. The server ends an idle one after 5 s.
package postgres

// Package postgres keeps Tenure's leases in a PostgreSQL database: leader
// election, fencing and decision logs beside the application's own tables.
//
//	err := postgres.Migrate(ctx, ownerDSN, nil) // once per release, by the role that owns the tables
//	b, err := postgres.Open(ctx, dsn, "orders", nil)
//
// PostgreSQL 13 or later; tested with 15. docs/backends/postgres.md has the
// recipe for the two roles, and what to watch.
//
// # Fencing your own tables
//
// [Backend.FenceTx] (database/sql) and [Backend.FencePgx] (pgx) prove a lease in
// your transaction on the same database. Its writes take effect if and only if the
// lease is the shard's current grant when it commits.
//
// # Connections
//
// Heartbeats, reads and the application's writes each have their own connections, so
// that none waits for another (E4): at most [Options].MaxConns for writes, and six more;
// after a lapse of trust three for pings. A cancelled statement costs its connection. One
// more connection listens for changes, unless Options.Pooler or NoNotify is set.
//
// Behind a pooler in transaction mode, such as PgBouncer, set Options.Pooler. Then
// nothing depends on the state of a connection, and the backend polls for changes.
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
//   - It does not restore the last grants and commits if a promoted asynchronous standby
//     lacks them. No token is granted twice nevertheless, because the namespace records
//     the server's system identifier and timeline, and the first call under another one
//     raises all tokens (I2). Members continue, and report the acknowledged commits that
//     are gone. Synchronous replication loses none.
//   - It does not notice a loss within one timeline: a base backup started without
//     recovery.signal, a snapshot of the disk, fsync = off. Raise the floor
//     ([Backend.RaiseFloor]) after such a loss. Open refuses synchronous_commit = off.
//   - It measures no time, and compares no clock of the client or the server.
//   - It does not end an application's open transaction. While that holds a fence, its
//     shard cannot be taken. The server ends an idle one after 5 s.
package postgres

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
// a transaction of yours on the same database: what it writes takes effect if and
// only if the lease is the shard's current grant when it commits.
//
// # Connections
//
// Heartbeats, reads and the application's writes each have connections of their
// own, so that none waits for another (E4): at most [Options].MaxConns for writes,
// and six more; after a lapse of trust three for pings. A statement that is cancelled costs its connection. One more
// listens for changes, unless there is a pooler.
//
// Behind a pooler in transaction mode, such as PgBouncer, set Options.Pooler:
// then nothing depends on the state of a connection, and changes are polled only.
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
//   - It does not bring back what an asynchronous standby lacks when it is promoted:
//     the last grants and commits are lost. No token is granted twice nevertheless:
//     the namespace records the server's system identifier and timeline, and the first
//     call under another one raises all tokens (I2). Members go on, and report commits
//     that were acknowledged and are gone. Use synchronous replication to lose none.
//   - It does not notice a loss within one timeline: a base backup that is started
//     without recovery.signal, a snapshot of the disk, fsync = off. Raise the floor
//     ([Backend.RaiseFloor]) after those. Open refuses synchronous_commit = off.
//   - It does not keep time, and compares no clock, of the client or the server.
//   - It does not help against a transaction of the application that is left open:
//     one that holds a fence keeps its shard from being taken, until the server
//     ends it after [FenceIdleTimeout].
package postgres

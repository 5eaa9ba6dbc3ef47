// Package postgres is a backend for PostgreSQL. It keeps leases and decision logs beside the
// application's own tables.
//
//	err := postgres.Migrate(ctx, ownerDSN, nil) // once per release, by the role that owns the tables
//	b, err := postgres.Open(ctx, dsn, "orders", nil)
//
// The package needs PostgreSQL 13 or later, and is tested with 15. See docs/backends/postgres.md
// for how to set up the two roles, and for what to monitor.
//
// # Fencing your own tables
//
// [Backend.FenceTx] (database/sql) and [Backend.FencePgx] (pgx) check a lease in your transaction
// on the same database. The transaction's writes take effect if and only if the lease is the
// shard's current grant at the commit.
//
// # Connections
//
// Heartbeats, reads and the application's writes each have their own connections, so that none
// waits for another (E4). There are at most [Options].MaxConns connections for writes, six others
// and, after a lapse of trust, three for pings. If a statement is cancelled, its connection is
// closed. One more connection listens for changes, unless Options.Pooler or NoNotify is set.
//
// Behind a pooler in transaction mode, such as PgBouncer, set Options.Pooler. The backend then does
// not depend on the state of a connection, and polls for changes.
//
// # Tables
//
// All tables can be queried. See schema/0001_tables.sql for each column. These queries return the
// current leases and a shard's log:
//
//	SELECT shard, session, token FROM tenure_shards WHERE namespace = 'orders' AND session <> '';
//	SELECT seq, token, payload FROM tenure_entries WHERE namespace = 'orders' AND shard = 's1' ORDER BY seq;
//
// Do not change the tables by hand.
//
// # What it does not do
//
//   - It does not restore the last grants and commits if a promoted asynchronous standby lacks
//     them. Even so, no token is granted twice. The namespace records the server's system
//     identifier and timeline, and the first call under another pair raises all tokens (I2).
//     Members continue, and report the acknowledged commits that are lost. Synchronous replication
//     loses none.
//   - It does not notice a loss within one timeline, which can be caused by a base backup started
//     without recovery.signal, a snapshot of the disk, or fsync = off. After such a loss, raise the
//     floor ([Backend.RaiseFloor]). Open refuses synchronous_commit = off.
//   - It measures no time, and does not compare the clocks of clients or servers.
//   - It does not end an application's open transaction. While that transaction holds a fence, its
//     shard cannot be taken. The server ends an idle transaction after 5 s.
package postgres

// Package postgres is a backend for PostgreSQL. It keeps leases and decision logs alongside the
// application's own tables.
//
//	err := postgres.Migrate(ctx, ownerDSN, nil) // once per release, by the role that owns the tables
//	b, err := postgres.Open(ctx, dsn, "orders", nil)
//
// The package requires PostgreSQL 13 or later, and is tested with PostgreSQL 15.
// docs/backends/postgres.md explains how to set up the two roles and what to monitor.
//
// # Fencing your own tables
//
// [Backend.FenceTx] (database/sql) and [Backend.FencePgx] (pgx) check a lease in your transaction
// on the same database. Your writes take effect only if the lease is the shard's current grant when
// the transaction commits.
//
// # Connections
//
// Heartbeats, reads and the application's writes use separate connections, so they never wait for
// one another (E4). The backend opens at most [Options].MaxConns connections for writes, six for
// other calls, and three for pings after trust lapses. Cancelling a statement closes its
// connection. One more connection listens for changes, unless Options.Pooler or NoNotify is set.
//
// Behind a pooler in transaction mode, such as PgBouncer, set Options.Pooler. The backend then
// polls for changes, and does not depend on connection state.
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
//   - If a promoted asynchronous standby lacks the last grants and commits, the backend does not
//     restore them. Even so, no token is granted twice. The namespace records the server's system
//     identifier and timeline, and the first call under a different pair raises all tokens (I2).
//     Members continue and report the acknowledged commits that were lost. With synchronous
//     replication, no acknowledged commit is lost.
//   - The backend does not detect a loss within one timeline. Possible causes are a base backup
//     started without recovery.signal, a disk snapshot, and fsync = off. After such a loss, raise
//     the floor ([Backend.RaiseFloor]). Open refuses synchronous_commit = off.
//   - The backend does not measure time or compare the clocks of clients or servers.
//   - The backend does not end an application's open transaction. While that transaction holds a
//     fence, no process can claim the fence's shard. The server ends an idle transaction after 5 s.
package postgres

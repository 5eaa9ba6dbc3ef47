// Package redis is a backend for Redis 7.0 or later, and for Valkey.
//
//	b, err := redis.Open(ctx, &goredis.UniversalOptions{Addrs: []string{"localhost:6379"}}, "orders", nil)
//
// Package kv implements the contract; this package is its store:
//
//   - A batch is one script, in which every decision is a comparison. The client sends the script's
//     digest, and the script's text if the server does not have it. The client's own retries are
//     disabled.
//   - A token is the revision of the write that granted the lease. The revision is a counter of the
//     namespace. It is stored in the same hash as the records, so it cannot be lost without them.
//     No key expires, and no clock is read.
//   - All keys of a namespace are in one slot of a cluster.
//   - Trimmed streams report changes. A reader that missed changes reads everything again.
//   - Heartbeats and pings have their own connections, and so do calls that wait for changes.
//
// # What Redis promises
//
// Open reads the server's settings, and refuses settings with which an acknowledged grant can be
// lost: a log that is not synchronized with each write, keys that may be evicted, and replicas that
// can take over although no write waited for them. [Options.AllowLoss] accepts these settings.
//
// Every script also compares the server's replication id, which changes with each restart and with
// each promotion of a replica. With [Options.Replicas], processes continue on a replica that takes
// over. That replica has every acknowledged write, including heartbeats, and everything that was
// read. In all other cases, Tenure detects that the server may have lost recent writes, before it
// grants anything. Processes then stop with driver.ErrStoreChanged. When the namespace is opened
// again, new tokens are greater than all earlier ones (rules I1 and I2).
//
// # What it does not do
//
// Without Replicas, the package cannot tell a restarted server from a replica that has taken over
// the server's address and restarted after its promotion. If replicas can take over, name the
// Sentinels or the cluster. Scripts and streams need a direct connection to a server. A proxy that
// distributes a client's commands among several servers does not work.
//
// See docs/backends/redis.md for keys, rights, limits and costs.
package redis

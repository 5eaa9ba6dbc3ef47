// Package redis is a backend on Redis 7.0 or later, and on Valkey.
//
//	b, err := redis.Open(ctx, &goredis.UniversalOptions{Addrs: []string{"localhost:6379"}}, "orders", nil)
//
// Package kv does the work; this package is its store:
//
//   - A batch is one script, in which every decision is a compare. The client sends the
//     script's digest, and its text if the server does not have it. The client's own retries
//     are disabled.
//   - A token is the revision of the write that granted the lease. The revision is a
//     counter of the namespace, stored in the same hash as the records, so it is lost with
//     them or not at all. No key expires, and no clock is read.
//   - All keys of a namespace are in one slot of a cluster.
//   - Trimmed streams report changes. A reader that missed some reads everything again.
//   - Heartbeats and pings have their own connections, and so have calls that wait for
//     changes.
//
// # What Redis promises
//
// Open reads the server's settings, and refuses settings that can lose an acknowledged grant.
// These are a log that is not synchronized with each write, keys that may be evicted, and
// replicas that take over although no write waited for them. [Options.AllowLoss] accepts these
// settings.
//
// Every script also compares the server's replication id, which changes with each restart and
// with each promotion of a replica. With [Options.Replicas], processes continue at a replica
// that takes over. That replica has every acknowledged write, heartbeats included, and
// everything that was read. In all other cases, Tenure detects a server that may have lost the
// end of the history before it grants anything. Processes then stop with
// driver.ErrStoreChanged. When the namespace is opened again, its tokens continue above all
// earlier ones (rules I1 and I2).
//
// # What it does not do
//
// Without Replicas, a replica that takes over a server's address, and that restarted after its
// promotion, looks like a restarted server. If replicas take over, name the Sentinels or the
// cluster. Scripts and streams need a direct connection to a server. A proxy that spreads a
// client's commands over several servers does not work.
//
// See docs/backends/redis.md for keys, rights, limits and costs.
package redis

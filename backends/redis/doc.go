// Package redis is a backend on Redis 7.0 or later, and on Valkey.
//
//	b, err := redis.Open(ctx, &goredis.UniversalOptions{Addrs: []string{"localhost:6379"}}, "orders", nil)
//
// Package kv does the work; this package is its store:
//
//   - A batch is one script, in which every decision is a compare. It is sent by its
//     digest, and with its text where the server does not have it. The client's own
//     retries are switched off.
//   - A token is the revision of the write that granted the lease: a counter of the
//     namespace, stored in the same hash as the records, which is lost with them or not at
//     all. No key expires, and no clock is read.
//   - All keys of a namespace are in one slot of a cluster.
//   - Changes are told by streams, which are trimmed. A reader that missed some reads
//     everything again.
//   - Heartbeats, and the reads that stand for them, have their own connections, and so
//     have calls that wait for changes.
//
// # What Redis promises
//
// Open reads the server's settings, and refuses those under which an acknowledged grant can
// be lost: a log that is not synchronized with each write, keys that may be evicted,
// replicas that take over without having been waited for. [Options.AllowLoss] accepts them.
//
// Every script compares the server's replication id as well, which changes with each
// restart and with each promotion of a replica. With [Options.Replicas] processes go on at
// a replica that takes over: it has every write that was acknowledged, heartbeats included,
// and everything that was read. Otherwise a server that may have lost the end of the
// history is found out before anything is granted: processes stop with
// driver.ErrStoreChanged, and tokens go on above all earlier ones when the namespace is
// opened again (rules I1 and I2).
//
// # What it does not do
//
// Without Replicas a server at one address that is replaced, under the same address, by a
// replica that was started again since its promotion cannot be distinguished from a
// restart: name the Sentinels or the cluster where replicas take over. Scripts and streams need a server of
// Redis's own protocol: proxies that spread a client's commands over servers do not do.
//
// Keys, rights, limits and costs: docs/backends/redis.md.
package redis

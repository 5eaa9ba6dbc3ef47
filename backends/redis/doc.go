// Package redis is a backend for Redis 7.0 or later, and for Valkey.
//
//	b, err := redis.Open(ctx, &goredis.UniversalOptions{Addrs: []string{"localhost:6379"}}, "orders", nil)
//
// Package kv implements the driver contract. This package provides the store:
//
//   - A batch is one script, in which every decision is a comparison. The client sends the script's
//     digest. If the server does not have the script, the client sends the script's text. The
//     client's own retries are disabled.
//   - A token is the revision of the write that granted the lease. The namespace's revision counter
//     is in the same hash as the records, so the server can lose the counter only together with the
//     records. No key expires, and scripts read no clock.
//   - In a cluster, all keys of a namespace are in one slot.
//   - Changes are reported in trimmed streams. A reader that missed changes reads all records
//     again.
//   - Heartbeats and pings have their own connections, and so do calls that wait for changes.
//
// # What Redis promises
//
// Open reads the server's settings, and refuses settings with which an acknowledged grant can be
// lost. Examples are a log that is not synchronized on each write, eviction of keys, and failover
// to replicas for which writes do not wait. With [Options.AllowLoss], Open accepts these settings.
//
// Every script also compares the server's replication id, which changes with each restart and with
// each promotion of a replica. With [Options.Replicas], processes continue on a replica that takes
// over. The promoted replica has every acknowledged write, including heartbeats, and all data that
// any process has read. In all other cases, Tenure detects a possible loss of recent writes before
// it grants any lease. Processes then stop with driver.ErrStoreChanged. When the namespace is
// reopened, new tokens are greater than all earlier tokens (rules I1 and I2).
//
// # What it does not do
//
// Without Replicas, the package cannot distinguish a restarted server from a replica that has taken
// over the server's address and restarted after its promotion. If replicas can take over, give Open
// the addresses of the Sentinels or of the cluster. Because scripts and streams need a direct
// connection to a server, Tenure does not work through a proxy that distributes a client's commands
// among several servers.
//
// See docs/backends/redis.md for keys, permissions, limits and costs.
package redis

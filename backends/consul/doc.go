// Package consul keeps Tenure's leases in Consul's key-value store: leader
// election, fencing and decision logs without Consul's sessions and locks.
//
//	client, err := api.NewClient(api.DefaultConfig())
//	b, err := consul.OpenClient(ctx, client, "orders", nil)
//
// [Open] makes the client itself. The package needs Consul 1.14 or later, and is tested with
// 1.16. See docs/backends/consul.md for keys, rights, limits and costs.
//
// # Fencing your own transactions
//
// [Backend.GuardOps] returns operations for your own transaction on the same Consul. With them,
// the transaction takes effect only if the lease is the shard's current grant.
//
// # Consul's features in use
//
// The backend uses transactions of the key-value store, reads in consistent mode, and blocking
// queries. In its transactions, every decision compares the index of a record's last change.
// Nothing depends on a session, a health check or an agent. The agent that forwards a request
// may restart at any time.
//
// A transaction has at most 128 operations and 512 KiB, enough to claim about forty shards.
// Change logs replace an incremental watch (see package changelog). After a change, each
// process reads the change logs, not the shards.
//
// # Connections
//
// A Backend uses one address. If that address fails, or does not answer heartbeats while
// another of Config.Addresses does, the Backend uses that one (see package route).
//
// While heartbeats are answered, it has at most six requests in flight, for any number of
// shards. These are one heartbeat, which never waits for other requests (rule E4), three calls,
// and two blocked queries. While a heartbeat is unanswered, the next ones use further
// connections. Pings after a lapse of trust use their own. With [Open], each request has a
// client with at most one connection. With [OpenClient], the client's pool decides. Go's HTTP
// client may keep a few more idle connections, because it continues to dial for a request that
// found another connection. Do not limit them by MaxConnsPerHost: dials into a cut network
// would exhaust it, and heartbeats would wait for them.
//
// # What it does not do
//
//   - If no process that saw them is left, it does not notice that a cluster lost acknowledged
//     writes. Raise the floor ([RaiseFloor]) after restoring a snapshot into another cluster.
//     After a restore in place, every process that saw a later state returns ErrStoreChanged
//     until it is opened again.
//   - It does not work across datacenters, because each has its own key-value store.
//   - It does not suit a long log. See docs/backends/consul.md for the limits.
package consul

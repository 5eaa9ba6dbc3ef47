// Package consul is a backend for Consul's key-value store. It does not use Consul's sessions and
// locks.
//
//	client, err := api.NewClient(api.DefaultConfig())
//	b, err := consul.OpenClient(ctx, client, "orders", nil)
//
// [Open] makes its own client. The package needs Consul 1.14 or later, and is tested with 1.16. See
// docs/backends/consul.md for keys, rights, limits and costs.
//
// # Fencing your own transactions
//
// [Backend.GuardOps] returns operations for your own transaction on the same Consul. With them,
// the transaction takes effect only if the lease is the shard's current grant.
//
// # Consul's features in use
//
// The backend uses transactions of the key-value store, reads in consistent mode, and blocking
// queries. In its transactions, every decision compares the index of a record's last change. The
// backend does not depend on a session or a health check, and the agent that forwards its requests
// may restart at any time.
//
// A transaction has at most 128 operations and 512 KiB, enough to claim about forty shards. Change
// logs take the role of an incremental watch (see package changelog). After a change, each process
// reads the change logs, not the shards.
//
// # Connections
//
// A Backend uses one address. If that address fails, the Backend switches to another of
// Config.Addresses. It also switches if only the other address answers heartbeats (see package
// route).
//
// While heartbeats are answered, a Backend has at most six requests in flight, for any number of
// shards: one heartbeat, which never waits for other requests (rule E4), three calls, and two
// blocked queries. While a heartbeat is unanswered, the next heartbeats use further connections.
// Pings after a lapse of trust use their own connections. With [Open], each request has a client
// with at most one connection. With [OpenClient], the client's pool decides. Go's HTTP client may
// keep a few more idle connections, because it continues to dial for a request that found another
// connection. Do not limit connections with MaxConnsPerHost: dials into a cut network would exhaust
// the limit, and heartbeats would wait.
//
// # What it does not do
//
//   - It does not notice that a cluster lost acknowledged writes if no process that saw these
//     writes is still running. Raise the floor ([RaiseFloor]) after restoring a snapshot into
//     another cluster. After a restore in place, every Backend that saw a later state returns
//     ErrStoreChanged until it is opened again.
//   - It does not work across datacenters, because each has its own key-value store.
//   - It is not suitable for long logs. See docs/backends/consul.md for the limits.
package consul

// Package consul is a backend for Consul's key-value store. It uses neither Consul's sessions nor
// its locks.
//
//	client, err := api.NewClient(api.DefaultConfig())
//	b, err := consul.OpenClient(ctx, client, "orders", nil)
//
// [Open] creates a new Consul client. The package requires Consul 1.14 or later, and is tested with
// 1.16. See docs/backends/consul.md for keys, permissions, limits and costs.
//
// # Fencing your own transactions
//
// [Backend.GuardOps] returns operations to add to your own transaction on the same Consul cluster.
// With these operations, the transaction takes effect only if the lease is current.
//
// # Consul's features in use
//
// The backend uses the key-value store's transactions, consistent reads and blocking queries. A
// condition compares the index of a record's last change. The backend does not depend on sessions
// or health checks. The agent that forwards the backend's requests may restart at any time.
//
// A transaction has at most 128 operations and 512 KiB, which is enough to claim about forty
// shards. Consul has no incremental watch, so the backend writes change logs (see package
// changelog). After a change, each process reads the change logs instead of the shards.
//
// # Connections
//
// A Backend uses one address at a time. If that address fails, the Backend switches to another
// address from Config.Addresses. The Backend also switches if only another address answers
// heartbeats (see package route).
//
// While heartbeats are answered, a Backend has at most six requests in flight: one heartbeat, three
// calls and two blocking queries. This limit does not depend on the number of shards. A heartbeat
// never waits for other requests (rule E4). While a heartbeat is unanswered, the next heartbeats
// use additional connections. Pings after a lapse of trust use their own connections. With [Open],
// each request uses a client that has at most one connection. With [OpenClient], the client's pool
// determines the number of connections. Go's HTTP client may keep a few more idle connections,
// because it completes a dial even if the request has found another connection. Do not set
// MaxConnsPerHost, because during a network partition, dials would exhaust that limit and delay
// heartbeats.
//
// # What it does not do
//
//   - If the cluster loses acknowledged writes, a Backend detects the loss only if some running
//     process has seen these writes. Raise the floor ([RaiseFloor]) after restoring a snapshot into
//     another cluster. After a restore in place, every Backend that saw a later state returns
//     ErrStoreChanged until it is reopened.
//   - A Backend works in only one datacenter, because each datacenter has a separate key-value
//     store.
//   - The package is not suitable for long logs. See docs/backends/consul.md for the limits.
package consul

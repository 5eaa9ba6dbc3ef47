// Package consul keeps Tenure's leases in Consul's key-value store: leader
// election, fencing and decision logs without Consul's sessions and locks.
//
//	client, err := api.NewClient(api.DefaultConfig())
//	b, err := consul.Open(ctx, client, "orders", nil)
//
// [OpenConfig] makes the client itself. Consul 1.14 or later; tested with 1.16.
// Keys, rights, limits and costs: docs/backends/consul.md.
//
// # Fencing your own transactions
//
// [Backend.GuardOps] are the operations that make a transaction of yours on the same
// Consul take effect only if the lease is the shard's current grant.
//
// # Consul's features in use
//
// Transactions of the key-value store, in which every decision is a compare of the
// index of a record's last change; reads in consistent mode; and blocked queries.
// Nothing hangs on a session, a health check or an agent: whichever agent a request
// goes through may restart at any time.
//
// A transaction has at most 128 operations and 512 KiB, so that about forty shards are
// claimed in one. Change logs replace an incremental watch (see package changelog): a
// change costs each process a read of those, not of the shards.
//
// # Connections
//
// A Backend uses one address. Of several (Config.Addresses) another one is used when
// that fails, or does not answer heartbeats while another one does: see package route.
//
// While heartbeats are answered it has at most six requests under way at once, for any
// number of shards: one for heartbeats, which never wait for other requests (rule E4),
// three for those, and two blocked queries. Heartbeats without an answer are followed
// by others, on further connections, and pings after a lapse of trust have their own.
// With [OpenConfig] each request has a client with at most one connection. With [Open]
// the client's pool decides: Go's HTTP client may keep a few idle connections more,
// because it goes on dialing for a request that found another connection. Do not set
// MaxConnsPerHost for that: dials into a network that is cut would use it up, and
// heartbeats would wait for them.
//
// # What it does not do
//
//   - It does not notice that a cluster lost acknowledged writes where no process
//     is left that saw them: raise the floor ([RaiseFloor]) after restoring a
//     snapshot into another cluster. After a restore in place, every process that
//     saw a later state answers ErrStoreChanged, until it is opened again.
//   - It does not work across datacenters: Consul keeps one key-value store in each.
//   - It is no place for a long log: see the page on its limits.
package consul

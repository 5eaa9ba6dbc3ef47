// Package etcd is a backend on etcd, 3.5.28, 3.6.9, 3.7 or later.
//
//	b, err := etcd.OpenConfig(ctx, clientv3.Config{
//		Endpoints: []string{"https://etcd-0:2379", "https://etcd-1:2379", "https://etcd-2:2379"},
//		TLS:       tlsConfig,
//	}, "orders", nil)
//
// [Open] takes a client that the application has already. Package kv does the
// work; this package is its store:
//
//   - A batch is one transaction of etcd: its guard is the outer condition, and
//     each of its transactions is nested, so that they are independent of each
//     other. Batches above the server's operation limit are split.
//   - A token is the revision of the write that granted the lease. A claim, a fence
//     and a heartbeat compare revisions, in the transaction that writes; no lease
//     of etcd is used, and no election.
//   - The id of the cluster is the store's incarnation (rule I2). Opening under another
//     one than that on record, as of a restored cluster, raises the tokens; a process
//     that meets another one later stops with driver.ErrStoreChanged.
//   - Writes are sent once: the client's own retry of a call that ended with a
//     deadline or a cancellation on the server's side is switched off. A write of
//     which nothing was sent matches driver.ErrRetry.
//   - Every call asks the member to have a leader, so that one in a minority
//     refuses at once, and its watches end instead of falling silent.
//   - Heartbeats have their own connection. A member that does not answer them
//     while another member does is left at once, with all calls: see package route.
//
// [Backend.Guard] is the fence for the application's own transactions.
//
// Keys, roles, limits and costs: docs/backends/etcd.md.
package etcd

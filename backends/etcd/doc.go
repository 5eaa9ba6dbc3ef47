// Package etcd is a backend on etcd. It needs etcd 3.5.28, 3.6.9, 3.7 or later.
//
//	b, err := etcd.Open(ctx, clientv3.Config{
//		Endpoints: []string{"https://etcd-0:2379", "https://etcd-1:2379", "https://etcd-2:2379"},
//		TLS:       tlsConfig,
//	}, "orders", nil)
//
// [OpenClient] takes a client that the application already has. Package kv does the work; this
// package is its store:
//
//   - A batch is one transaction of etcd. Its guard is the outer condition, and each of
//     its transactions is nested, so that they are independent. A batch above the
//     server's operation limit is split.
//   - A token is the revision of the write that granted the lease. A claim, a fence and a
//     heartbeat compare revisions, in the transaction that writes. The backend uses neither
//     leases nor elections of etcd.
//   - The id of the cluster is the store's incarnation (rule I2). If the recorded id differs,
//     for example after a restore into a new cluster, opening raises the tokens. A process that
//     meets another id later stops with driver.ErrStoreChanged.
//   - Writes are sent once. The client's own retry of a call that the server ended with a
//     deadline or a cancellation is disabled. If no part of a write was sent, its error matches
//     driver.ErrRetry.
//   - Every call requires that the member has a leader. A member in a minority refuses
//     immediately, and its watches end instead of falling silent.
//   - Heartbeats have their own connection. If a member does not answer them while
//     another member does, all calls move to the other immediately: see package route.
//
// [Backend.Guard] is the fence for the application's own transactions.
//
// See docs/backends/etcd.md for keys, roles, limits and costs.
package etcd

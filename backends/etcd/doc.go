// Package etcd is a backend for etcd. It requires at least etcd 3.5.28, 3.6.9 or 3.7.
//
//	b, err := etcd.Open(ctx, clientv3.Config{
//		Endpoints: []string{"https://etcd-0:2379", "https://etcd-1:2379", "https://etcd-2:2379"},
//		TLS:       tlsConfig,
//	}, "orders", nil)
//
// [OpenClient] uses the application's existing client. Package kv implements the driver contract.
// This package provides the store:
//
//   - A batch is one etcd transaction. The batch's guard is its outer condition, and the batch's
//     own transactions are nested inside it, so they are independent. A batch that exceeds the
//     server's operation limit is split.
//   - A token is the revision of the write that granted the lease. Claims, fences and heartbeats
//     compare revisions in the transaction that writes. The backend uses neither etcd's leases nor
//     its elections.
//   - The cluster's id is the store's incarnation (rule I2). If the recorded id differs, for
//     example after a restore into a new cluster, Open raises the base of later tokens. A process
//     that later encounters a different id stops with driver.ErrStoreChanged.
//   - A write is sent once. The client does not retry calls that the server ended because of a
//     deadline or a cancellation. If no part of a write was sent, its error matches
//     driver.ErrRetry.
//   - Every call requires that the etcd member has a leader. A member in a minority refuses calls
//     immediately, and ends its watches instead of falling silent.
//   - Heartbeats have their own connection. If one etcd member stops answering heartbeats while
//     another answers, all calls move to the other member immediately (see package route).
//
// [Backend.Guard] returns a fence's conditions for the application's own transactions.
//
// See docs/backends/etcd.md for keys, roles, limits and costs.
package etcd

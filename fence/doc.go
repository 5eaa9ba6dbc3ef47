// Package fence uses fencing tokens to protect writes outside the store that grants the leases.
// Such writes may go to another service, the application's own database, or a device. The
// destination accepts a write only if the write's token is at least as high as the highest token
// that the resource has seen (rule S3).
//
//	mark := fence.NewMark(marks, &fence.Options{OnRefused: report})
//	err := mark.Do(ctx, "ledger/7", lease.Fence(), func(ctx context.Context) error {
//		return transfer(ctx)
//	})
//
// # Which fence do I use
//
//	the protected data is ...                       use
//	the shard's own keys and log                    Lease.Commit: the store checks
//	in the database that a SQL backend uses         FenceTx of the backend
//	your own keys in etcd, Consul or ZooKeeper      Guard or GuardOps of the backend
//	in tables of another database                   SQL.AdmitTx, or Rows.Update
//	behind an HTTP service                          Transport and Mark.Handler
//	in a database behind an HTTP service            both: Mark.Handler, and in it SQL.AdmitTx
//	behind a gRPC service                           package fencegrpc
//	behind messages                                 Message, and a Mark at the consumer
//	a device, a file, an API without conditions     Mark.Do in the one process that writes to it
//
// In Go, a fence is a driver.Fence. core.Fence is another name for the same type.
//
// # The promise of a mark
//
// A resource's mark is the fence with the highest token that the resource has admitted. The mark
// refuses every lower token. The mark also refuses the same token from a different holder. Only a
// fault outside this package can cause such a conflict. The [Storage] admits a fence and raises the
// mark in one atomic step.
//
// Raising the mark and performing the effect are separate steps unless they share a transaction
// ([SQL.AdmitTx], [Rows]). Within one process, [Mark.Do] makes a higher token wait until the
// effects of lower tokens have ended. If several processes write to one resource, they need such a
// shared transaction.
//
// A resource that has not seen a new leader's token cannot refuse the old leader's token.
// Therefore, a new leader calls [Mark.Seal] for every resource before it announces itself.
//
// Only the leases of one shard may write to a resource. By default, a resource's name is the
// shard's name, or begins with the shard's name and "/". For example, "ledger" and "ledger/7"
// belong to shard "ledger". [Options].MayWrite can set another rule. The mark refuses a write under
// another shard's lease with a [ForeignError], and the write does not raise the mark.
//
// # What it does not do
//
// The package does not authenticate callers. A fence is a claim, not a credential. Any caller of a
// protected service can claim a lease of a resource's shard and permanently raise the resource's
// mark to any token. Such a mark locks out the rightful owner. Therefore, authenticate callers
// first, and specify which shards each caller may use ([HTTPOptions].MayWrite). By default, the
// resource is the shard in the caller's fence. Let the server choose the resource instead
// ([HTTPOptions].Resource, or the gRPC counterpart).
//
// The package does not elect leaders or read clocks. Marks in memory do not survive a restart. A
// resource may then admit a stale token until a leader seals the resource. To avoid this risk, keep
// marks in a file or a database.
package fence

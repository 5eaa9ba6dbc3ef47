// Package fence carries the fencing token to writes outside the store that grants the leases: in
// another service, the application's own database, or a device. The destination accepts a write if
// and only if its token is at least the highest that the resource has seen (rule S3).
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
// A fence is a driver.Fence; core.Fence is another name for the same type.
//
// # The promise of a mark
//
// The mark of a resource is the fence with the highest token that it has admitted. The mark
// permanently refuses a lower token. It also refuses the same token from another holder, which
// occurs only after an error elsewhere. The [Storage] admits a fence and raises the mark in one
// atomic step.
//
// That step and the effect are separate, unless they share a transaction ([SQL.AdmitTx], [Rows]).
// Within one process, [Mark.Do] keeps a higher token waiting until the effects of lower ones have
// ended. If several processes write to one resource, they need the transaction.
//
// A resource that has not seen the new token cannot refuse the old one. Therefore, a new leader
// calls [Mark.Seal] at every resource before it announces itself.
//
// Only one shard's leases write to a resource. By default, the resource has the shard's name:
// "ledger" or "ledger/7" for shard "ledger". [Options].MayWrite can state another rule. A mark
// refuses leases of other shards with a [ForeignError], and they do not raise it.
//
// # What it does not do
//
// The package does not authenticate callers. A fence is a claim, not a credential. Any caller of a
// protected service can name a resource's shard and permanently raise its mark to any token. This
// locks out the rightful owner. Authenticate callers first, and have the server name the resource
// ([HTTPOptions].Resource, or its gRPC counterpart), since the default is the shard that the caller
// names. Specify which caller may use which shard ([HTTPOptions].MayWrite).
//
// The package elects no leader and reads no clock. A restart loses marks that are kept in memory. A
// stale token may then be admitted until a leader seals the resource. Keep marks in a file or a
// database.
package fence

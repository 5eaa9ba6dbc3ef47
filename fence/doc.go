// Package fence protects writes outside the store that grants the leases with the fencing token.
// Such writes may go to another service, the application's own database, or a device. The
// destination accepts a write if and only if its token is at least the highest that the resource
// has seen (rule S3).
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
// permanently refuses a lower token. It also refuses the same token from another holder, which can
// occur only because of an error elsewhere. The [Storage] admits a fence and raises the mark in one
// atomic step.
//
// That step and the effect are separate unless they share a transaction ([SQL.AdmitTx], [Rows]).
// Within one process, [Mark.Do] makes a higher token wait until the effects of lower tokens have
// ended. If several processes write to one resource, they need such a transaction.
//
// A resource that has not seen the new token cannot refuse the old token. Therefore, a new leader
// calls [Mark.Seal] for every resource before it announces itself.
//
// Only the leases of one shard may write to a resource. By default, the name of a resource is the
// shard's name, or begins with the shard's name and "/". For example, "ledger" and "ledger/7"
// belong to shard "ledger". [Options].MayWrite can set another rule. Writes under leases of other
// shards are refused with a [ForeignError], and do not raise the mark.
//
// # What it does not do
//
// The package does not authenticate callers. A fence is a claim, not a credential. Any caller of a
// protected service can name a resource's shard and permanently raise the resource's mark to any
// token, which locks out the rightful owner. Therefore, authenticate callers first, and specify
// which caller may use which shard ([HTTPOptions].MayWrite). Let the server name the resource
// ([HTTPOptions].Resource, or its gRPC counterpart), because the default is the shard that the
// caller names.
//
// The package elects no leader and reads no clock. A restart loses marks that are kept in memory,
// and a stale token may then be admitted until a leader seals the resource. To prevent this, keep
// marks in a file or a database.
package fence

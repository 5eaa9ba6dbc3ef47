// Package fence carries the fencing token to writes outside the store that grants the leases: in
// another service, the application's own database, or a device. A write is accepted there if and
// only if its token is at least the highest that the resource has seen (rule S3).
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
// A fence is a driver.Fence; core.Fence is another name of the same type.
//
// # The promise of a mark
//
// The mark of a resource is the fence with the highest token that it has admitted. It refuses a
// lower token permanently. It also refuses the same token from another holder, which occurs only
// after an error elsewhere. Admitting and raising are one atomic step of the [Storage].
//
// That step and the effect are separate, unless they share a transaction ([SQL.AdmitTx], [Rows]).
// [Mark.Do] keeps a higher token waiting until the effects of lower ones have ended, within one
// process. Several processes that write to one resource need the transaction.
//
// A resource that has not seen the new token cannot refuse the old one. Therefore a new leader
// calls [Mark.Seal] at every resource before it announces itself.
//
// Leases of one shard write to a resource. By default the resource has the shard's name: "ledger"
// or "ledger/7" for shard "ledger". [Options].MayWrite can state another rule. Leases of other
// shards are refused with a [ForeignError], and do not move the mark.
//
// # What it does not do
//
// It does not authenticate. A fence is a claim, and no credential. Any caller of a protected
// service can name a resource's shard, raise its mark to any token permanently, and so lock out the
// rightful owner. Authenticate callers first, and have the server name the resource
// ([HTTPOptions].Resource, or its gRPC counterpart), since the default is the shard that the caller
// names. State which caller may use which shard ([HTTPOptions].MayWrite).
//
// It elects no leader, and reads no clock. A restart forgets a mark that is kept in memory; a stale
// token may then be admitted until a leader seals. Keep marks in a file or a database.
package fence

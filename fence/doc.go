// Package fence carries the fencing token to where writes really happen, outside
// the store that grants the leases: another service, a database of the
// application's own, a device. A write is accepted there if and only if its token
// is at least the highest that the resource has seen (rule S3).
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
//	in etcd, Consul or ZooKeeper, keys of your own  Guard or GuardOps of the backend
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
// The mark of a resource is the fence with the highest token that it has admitted.
// A lower token is refused for ever, and so is the same token from another holder,
// which can only mean that something is wrong. Admitting and raising are one atomic
// step of the [Storage].
//
// That step and the effect are two, unless they share a transaction ([SQL.AdmitTx],
// [Rows]). [Mark.Do] keeps a higher token waiting until the effects of lower ones
// have ended, within one process; several processes that write to one resource need
// the transaction.
//
// A resource that has not seen the new token cannot refuse the old one. A new
// leader therefore seals: [Mark.Seal] at every resource before it announces itself.
//
// A resource has one shard whose leases write to it: by default the one that it is
// named for, as "ledger" or "ledger/7" for shard "ledger"; [Options].MayWrite says
// otherwise. Leases of other shards are refused with a [ForeignError], and do not move
// the mark.
//
// # What it does not do
//
// It does not authenticate. A fence is a claim, and no credential: any caller of a
// protected service can name the shard of a resource, raise its mark to any token, for
// good, and so lock out the rightful owner. Authenticate callers first, have the
// server name the resource ([HTTPOptions].Resource, and its like for gRPC: the default
// is the shard that the caller names), and say which caller may use which shard
// ([HTTPOptions].MayWrite).
//
// It elects no leader, and reads no clock. A mark kept in memory is forgotten by a
// restart, after which a stale token may be admitted until somebody seals: keep it
// in a file or a database.
package fence

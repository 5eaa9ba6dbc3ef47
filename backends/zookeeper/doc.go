// Package zookeeper is a backend on a ZooKeeper ensemble, 3.5.3 or later.
//
//	b, err := zookeeper.Open(ctx, []string{"zk-0:2181", "zk-1:2181", "zk-2:2181"}, "orders", &zookeeper.Options{TLS: tlsConfig})
//
// Package kv does the work; this package is its store, with permanent nodes only.
// No ephemeral node, no sequence suffix and nothing of the client's sessions is
// relied on: a session that expires, or a server that is lost, costs a connection.
//
//   - A revision is a zxid: the Mzxid of a record. ZooKeeper compares data versions,
//     which fix no revision by themselves, because a node that was deleted and made
//     again counts from 0. So a revision is mapped to the version that was seen with
//     it, and a record that a fence depends on is never deleted: the run-time role
//     has no right to. A namespace that was removed and made again is detected by a
//     node named after its random id, which every write checks.
//   - A batch is one Multi, all or nothing. When it is refused, the compared records
//     are read on the same connection; transactions that cannot be applied are
//     answered from that, and the rest is sent again. Several travel at once.
//   - A change log of package changelog has the versions of the records that another
//     process wrote, in lines that this package adds. So the successor of a hand-over
//     commits without a read.
//   - ZooKeeper has no check that a node does not exist: creating and deleting it in
//     the same Multi is one.
//   - A read follows a write that changes nothing, shared by all reads that wait for
//     one. ZooKeeper's sync is not enough: on the leader it may answer before the
//     leader itself has applied a write that a follower acknowledged.
//   - A connection is used until it breaks, and never by the client library again:
//     requests in flight have an unknown outcome, and nothing is sent late. The
//     next server is asked where one refuses, and beside one that takes long.
//   - Watches are armed by the reads that answer them, and all anew on a new
//     connection. A process holds a watch for each change log and each heartbeat that
//     it follows, however many shards it wants.
//   - Heartbeats have their own connections (rule E4), and so have reads. All go to
//     one server, until a heartbeat beside a late one is answered by another: then
//     all move there, and calls to the silent server end with an unknown outcome.
//
// [Backend.GuardOps] is the fence for a Multi of the application's own.
//
// # What it does not do
//
// It does not remove the records of free locks (rule R2): a node that is made again begins
// with the versions of the one before, and a former holder's write could pass for the new one's.
// Each name that was ever locked leaves three small nodes.
//
// It does not notice by itself that an operator with an administrator's rights made
// a shard's record again by hand, with the right content and the version that a
// former owner remembers. It does not compare clocks, and starts no server. It does
// not use the dynamic configuration of an ensemble: name all servers.
//
// Nodes, rights, limits and costs: docs/backends/zookeeper.md.
package zookeeper

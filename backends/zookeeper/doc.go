// Package zookeeper is a backend on an ensemble of ZooKeeper 3.5.3 or later.
//
//	b, err := zookeeper.Open(ctx, []string{"zk-0:2181", "zk-1:2181", "zk-2:2181"}, "orders",
//		&zookeeper.Options{TLS: tlsConfig})
//
// Package kv does the work; this package is its store, with permanent nodes only.
// It relies on no ephemeral node, no sequence suffix and no session of the client. An
// expired session, or a lost server, costs only a connection.
//
//   - A revision is a zxid: the Mzxid of a record. ZooKeeper compares data versions, which
//     alone identify no revision, because a node that was deleted and created again counts from
//     0. So a revision is mapped to the version seen with it. A record that a fence depends on
//     is never deleted, and the run-time role has no right to delete it. Every write checks a
//     node named after the namespace's random id, which detects a namespace that was removed
//     and created again.
//   - A batch is one Multi, which is all or nothing. If it is refused, the compared records are
//     read on the same connection. Transactions that cannot be applied are answered from that
//     read, and the others are sent again. Several batches are in flight.
//   - This package adds lines to a change log of package changelog, with the versions of the
//     records that its process wrote. So the successor of a hand-over commits without a read.
//   - ZooKeeper cannot check that a node does not exist. Creating and deleting the node
//     in the same Multi serves as the check.
//   - A read follows a write that changes nothing and that all waiting reads share. ZooKeeper's
//     sync is not enough, because the leader may answer it before it has applied a write that a
//     follower acknowledged.
//   - A connection is used until it breaks. The client library never reconnects, so nothing is
//     sent late. Requests in flight then have an unknown outcome. If a server refuses, or takes
//     long, the next server is tried as well.
//   - The read that answers a watch arms it again. A new connection arms all watches. A process
//     holds a watch for each change log and each heartbeat that it follows, however many shards
//     it wants.
//   - Heartbeats have their own connections (rule E4), and so have reads. All go to one server.
//     If another server answers a heartbeat sent beside a late one, all connections move there.
//     Calls to the silent server then end with an unknown outcome.
//
// [Backend.GuardOps] is the fence for the application's own Multi.
//
// # What it does not do
//
// It does not remove the records of free locks (rule R2). A node that is created again begins
// with the versions of the previous node, so a previous holder's write could pass as the new
// holder's. Each name that was ever locked leaves three small nodes.
//
// It does not notice that an administrator created a shard's record again by hand, with the
// right content and the version that a previous owner remembers. It compares no clocks, and
// starts no server. It does not use the dynamic configuration of an ensemble, so name all
// servers.
//
// See docs/backends/zookeeper.md for nodes, rights, limits and costs.
package zookeeper

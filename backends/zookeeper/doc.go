// Package zookeeper is a backend for an ensemble of ZooKeeper 3.5.3 or later.
//
//	b, err := zookeeper.Open(ctx, []string{"zk-0:2181", "zk-1:2181", "zk-2:2181"}, "orders",
//		&zookeeper.Options{TLS: tlsConfig})
//
// Package kv implements the contract; this package is its store. All nodes are permanent. The
// package does not rely on ephemeral nodes, sequence suffixes or the client's session. An expired
// session, or a lost server, costs only a connection.
//
//   - A revision is the Mzxid of a record. ZooKeeper compares data versions, which alone do not
//     identify a revision, because a node that was deleted and created again counts from 0.
//     Therefore, a revision is mapped to the version seen with it. A record that a fence depends on
//     is never deleted, and the run-time role has no right to delete it. Every write checks a node
//     named after the namespace's random id, which detects a namespace that was removed and created
//     again.
//   - A batch is one Multi, which is all or nothing. If it is refused, the compared records are
//     read on the same connection. Transactions that cannot be applied are answered from that read,
//     and the others are sent again. Several batches may be in flight.
//   - The package adds lines to a change log (package changelog), with the versions of the records
//     that its process wrote. After a hand-over, the successor can therefore commit without a read.
//   - ZooKeeper cannot check that a node does not exist. Instead, the same Multi creates and
//     deletes the node.
//   - Each read follows a write that changes nothing, which all waiting reads share. ZooKeeper's
//     sync is not enough, because the leader may answer a sync before it has applied a write that a
//     follower acknowledged.
//   - A connection is used until it breaks. The client library never reconnects, so nothing is
//     sent late. Requests in flight then have an unknown outcome. If a server refuses, or takes
//     long, the next server is tried as well.
//   - The read that answers a watch arms it again. A new connection arms all watches. A process
//     holds a watch for each change log and each heartbeat that it follows, however many shards
//     it wants.
//   - Heartbeats have their own connections (rule E4), and so do reads. All connections go to one
//     server. If a heartbeat is late, another is sent to another server. If that server answers
//     first, all connections move there, and calls to the silent server end with an unknown
//     outcome.
//
// [Backend.GuardOps] is the fence for the application's own Multi.
//
// # What it does not do
//
// It does not remove the records of free locks (rule R2). A node that is created again begins with
// the same versions as the previous node, so a previous holder's write could pass as the new
// holder's. Each name that was ever locked leaves three small nodes.
//
// It does not notice if an administrator recreates a shard's record by hand, with the right content
// and the version that a previous owner remembers. It compares no clocks, and starts no server. It
// does not use the dynamic configuration of an ensemble, so name all servers.
//
// See docs/backends/zookeeper.md for nodes, rights, limits and costs.
package zookeeper

// Package zookeeper is a backend for an ensemble of ZooKeeper 3.5.3 or later.
//
//	b, err := zookeeper.Open(ctx, []string{"zk-0:2181", "zk-1:2181", "zk-2:2181"}, "orders",
//		&zookeeper.Options{TLS: tlsConfig})
//
// Package kv implements the driver contract. This package provides the store. All nodes are
// permanent. The package does not rely on ephemeral nodes, sequence suffixes or the client's
// session. If a session expires or a server fails, the package only loses a connection.
//
//   - A revision is a record's Mzxid. ZooKeeper compares data versions. Because a recreated node's
//     version starts again at 0, a version alone does not identify a revision. The package
//     therefore maps each revision to the version seen with it. A record on which a fence depends
//     is never deleted, and the run-time role may not delete it. Every write checks a node named
//     after the namespace's random id. This check detects a namespace that was removed and
//     recreated.
//   - A batch is one Multi, which is applied entirely or not at all. If the server refuses the
//     Multi, the package reads the compared records on the same connection. The package drops the
//     transactions that cannot be applied, and sends the rest again. Several batches may be in
//     flight.
//   - The package adds the versions of written records to a change log (see package changelog).
//     After a hand-over, the successor can therefore commit without a read.
//   - ZooKeeper cannot check that a node does not exist. Instead, the same Multi creates and
//     deletes the node.
//   - Each read is preceded by a write that changes nothing, which all waiting reads share.
//     ZooKeeper's sync is not enough, because the leader may answer a sync before it has applied a
//     write that a follower acknowledged.
//   - When a connection breaks, the requests in flight have an unknown outcome. The client library
//     never reconnects, so nothing is sent late. If a server refuses a connection or answers
//     slowly, the package also tries the next server.
//   - The read after a watch event sets the watch again. After a reconnection, the package sets all
//     watches again. A process has one watch for each change log and each heartbeat that it
//     follows, regardless of the number of shards.
//   - Heartbeats have their own connections (rule E4), and so do reads. All connections go to one
//     server. If a heartbeat is late, the next heartbeat goes to a different server. If that server
//     answers first, all connections move to it, and calls to the silent server end with an unknown
//     outcome.
//
// [Backend.GuardOps] returns a fence's conditions for the application's own Multi.
//
// # What it does not do
//
// The package does not remove the records of free locks (rule R2). Because a recreated node repeats
// the versions of the deleted node, a previous holder's write could pass as the new holder's. Each
// name that was ever locked leaves three small nodes behind.
//
// If an administrator recreates a shard's record by hand, with valid content and the version that a
// previous owner remembers, Tenure does not notice. The package neither compares clocks nor starts
// servers. Because the package does not use an ensemble's dynamic configuration, pass all servers
// to Open.
//
// See docs/backends/zookeeper.md for nodes, permissions, limits and costs.
package zookeeper

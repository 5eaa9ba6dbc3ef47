// Package quorum makes the processes of an application an etcd cluster, so the application needs no
// store besides its own processes.
//
//	m, err := quorum.Start(ctx, quorum.Config{
//		Cluster: "orders", Name: "a", Dir: "/var/lib/orders", Members: members, Create: firstTime,
//		PeerTLS: files, ClientTLS: files,
//	})
//	...
//	defer m.Close()
//	b, err := m.Open(ctx, "orders", nil)
//
// [Start] runs etcd's server in this process (package embed). [Member.Open] returns the ordinary
// backend for etcd, and [Dial] does the same in a process that is no member. [Replace] gives a lost
// member's place to a new disk or machine. [Restore] makes members of a new cluster from a
// snapshot. An [Operator], which each Member contains, lists and removes members, and writes
// snapshots; so does the command quorum/cmd/quorum. [Opener] starts a member from a configuration.
// etcd compacts its history and limits its size. If the database is full, the member that leads
// makes room without an operator.
//
// Limits:
//
//   - The cluster serves while a majority of its members runs: two of three, or three of five.
//   - If etcd cannot write to its data folder, for example on a full disk, etcd logs the reason and
//     ends the process, because the member may have lost data. Run the process under a supervisor.
//   - A process that is killed restarts with its data folder. A lost folder is never replaced
//     without a call of Replace.
//   - A member's peer address changes only through Replace.
//   - If a process uses all of its processors or its disk for other work, its member falls behind,
//     and the cluster may elect leaders often.
//
// See docs/quorum.md for operations and failures.
package quorum

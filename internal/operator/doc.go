// Package operator writes operators' rules and decides whether a node may be stopped. It is used by
// the tenure command and package tenurehttp.
//
// For each write, a Writer takes a lease of control.Shard, and makes its decision under that lease.
// If two Writers run at the same time, the later one sees the earlier one's rule. If a Writer has
// lost its lease, the fence rejects the write.
//
// Ask answers according to a budget, the number of nodes that may be away at the same time. A node
// that may stop gets a place, which is a rule of the kind control.Stop. A place expires after a set
// time, or earlier if Done is called or the node joins with a new session.
package operator

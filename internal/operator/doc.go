// Package operator writes operators' rules, and answers whether a node may be stopped. The
// command tenure and package tenurehttp both use it.
//
// A Writer takes a lease of control.Shard for each write. All decisions based on the rules are
// made under that lease. If two writers ask at the same time, the second sees what the first
// wrote. If a writer has lost its lease, the fence refuses its write.
//
// Ask answers according to a budget, the number of nodes that may be away at a time. A node
// that may stop gets a place, which is a rule of the kind control.Stop. The place ends when its
// time is up, when Done ends it, or when another session of the node has joined.
package operator

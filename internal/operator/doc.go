// Package operator writes operators' rules, and answers whether a node may be stopped. Both the
// command tenure and package tenurehttp use it.
//
// A Writer takes a lease of control.Shard for each write. It decides under that lease, so if two
// writers ask at the same time, the second sees the first one's write. If a writer has lost its
// lease, the fence refuses its write.
//
// Ask answers according to a budget: the number of nodes that may be away at the same time. A node
// that may stop gets a place, which is a rule of the kind control.Stop. The place lasts until its
// time is up, until Done ends it, or until another session of the node has joined.
package operator

// Package operator writes operators' rules, and answers whether a node may be stopped. The
// command tenure and package tenurehttp share it.
//
// A rule is written under a lease of control.Shard that a Writer takes for it. All that is
// decided from the rules is decided under that lease, so of two that ask at once the second
// sees what the first wrote; a writer that lost its lease meanwhile is refused by the fence.
//
// Ask answers by a budget: how many nodes may be away at a time. A node that may stop gets a
// place, which is a rule of the kind control.Stop. It ends at its end, by Done, or when another
// session of the node has joined.
package operator

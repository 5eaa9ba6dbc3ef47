// Command rates shares a table of exchange rates among processes. One of them, the
// leader, sets rates; all serve them from memory.
//
//	go run ./rates -db rates.db -node a
//	go run ./rates -db rates.db -node b     # in another terminal; then stop the first
//
// It follows without a log. The table is one item, written under the leader's
// fence: a leader that was paused and given up for dead cannot set a rate any more,
// even while it believes in its lease. A follower reads the item now and then, and
// knows how old its copy may be: everything set before it sent the last read that
// was answered is in it. This is enough where only the latest state counts; where
// every change does, see package follower.
package main

// Command rates shares a table of exchange rates among processes. One of them, the leader, sets
// rates; all serve them from memory.
//
//	go run ./rates -db rates.db -node a
//	go run ./rates -db rates.db -node b     # in another terminal; then stop the first
//
// It follows without a log. The table is one item, written under the leader's fence. A leader that
// was paused and superseded can no longer set a rate, even while it trusts its lease. A follower
// reads the item now and then. It knows how old its copy may be, because the copy has everything
// set before the last answered read was sent. This is enough if only the latest state counts. If
// every change counts, see package follower.
package main

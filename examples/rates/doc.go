// Command rates shares a table of exchange rates among processes. One process, the leader, sets
// rates, and all processes serve them from memory.
//
//	go run ./rates -db rates.db -node a
//	go run ./rates -db rates.db -node b     # in another terminal; then stop the first
//
// The followers need no log. The table is one item, which the leader writes under its fence. A
// leader that was paused and superseded can no longer set a rate, even while it trusts its lease. A
// follower reads the item from time to time. It knows how old its copy may be, because the copy
// contains every rate that was set before the last answered read was sent. This is enough if only
// the latest state matters. If every change matters, use package follower.
package main

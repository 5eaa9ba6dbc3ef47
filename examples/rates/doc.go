// Command rates shares a table of exchange rates among processes. The leader sets rates, and all
// processes serve them from memory.
//
//	go run ./rates -db rates.db -node a
//	go run ./rates -db rates.db -node b     # in another terminal; then stop the first
//
// The table is one item, which the leader writes under the fence, so the followers need no log. A
// leader that was paused and superseded can no longer set a rate, even while it trusts its lease. A
// follower reads the item periodically. Its copy contains every rate that was set before the last
// successful read was sent, so the follower knows how old the copy may be. If only the latest state
// matters, an item is enough. If every change matters, use package follower.
package main

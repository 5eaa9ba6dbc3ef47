// Package sidecar serves leases to programs in other languages through an HTTP API with JSON
// and server-sent events, on loopback or a Unix socket. The command "tenure serve" runs it. See
// docs/sidecar.md for its use, and openapi.json for every route.
//
// # A lease and its client
//
// A client contends for a shard with one request. The answer is a stream of the lease's states, and
// the lease belongs to that stream. It ends with the stream. It also ends if the client has made no
// request that names the lease for its TTL, because a stopped client keeps its connections. Every
// write names the token that the client believes it has. So a client that was stopped for a while
// does not write under a later lease.
//
//	client killed            the lease takes no write once the connection is closed
//	client stopped, cut off  no later than the client's TTL after its last request
//	sidecar killed, stopped  its session is evicted after the TTL, as any member's is
//
// In the first two cases, the lease is then given back in one write. The fence refuses the
// client's late writes.
//
// # Effects
//
// The lease's ledger (package effect) calls a function that waits for the client. The route
// begin answers when the function runs, and end lets it return. If the client does not end it
// in time, or the lease ends first, the function returns without an outcome. The effect is then
// in doubt.
//
// # Locks
//
// A lock (package lock) is also a lease with a stream, which ends when the lock is lost. The
// answer comes when the client has the lock, so the connection of a waiting client shows that
// the client is alive.
//
// # What it does not do
//
// A sidecar has one Elector, so only one client at a time contends for a shard through it. A
// standby needs its own sidecar. Any number of clients may wait for a lock. It serves no
// program outside the machine. It does not distinguish users, so every client may contend for
// every shard and lock.
package sidecar

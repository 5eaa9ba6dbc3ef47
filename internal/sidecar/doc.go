// Package sidecar serves leases to programs in other languages through an HTTP API with JSON and
// server-sent events, on loopback or a Unix socket. The command "tenure serve" runs a sidecar. See
// docs/sidecar.md for the usage, and openapi.json for the routes.
//
// # A lease and its client
//
// A client contends for a shard with one request. The answer is a stream of the lease's states, and
// the lease ends when the stream ends. Because a stopped process keeps its connections, the lease
// also ends if the client makes no request about it for the client's TTL. Every write contains the
// token that the client believes it has. A client that was stopped for a while therefore cannot
// write under a later lease.
//
//	client killed            the lease accepts no write once the connection is closed
//	client stopped, cut off  the same, at most the client's TTL after its last request
//	sidecar killed, stopped  its session is evicted after the TTL, like any member's session
//
// If the client is killed, stopped or cut off, the sidecar releases the lease in one write. The
// fence rejects the client's late writes.
//
// # Effects
//
// For each effect, the lease's ledger (package effect) calls a function that waits for the client.
// The "begin" route answers when this function runs, and the "end" route makes the function return.
// If the lease ends first, or the client does not call "end" in time, the function returns without
// an outcome, and the effect is in doubt.
//
// # Locks
//
// A lock (package lock) is also a lease with a stream, which ends when the lock is lost. The
// sidecar answers a lock request only when the client has the lock. Until then, the open connection
// shows that the client is alive.
//
// # What it does not do
//
// A sidecar has one Elector, so only one of its clients can contend for a shard at a time. A
// standby client needs a separate sidecar. Any number of clients may wait for a lock. The sidecar
// serves only programs on the same machine. It does not distinguish users, so every client may
// contend for every shard and lock.
package sidecar

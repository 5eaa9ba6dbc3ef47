// Package sidecar serves leases to programs in other languages: an HTTP API with JSON and
// server-sent events, on loopback or a Unix socket. The command tenure serve runs it;
// docs/sidecar.md is for its users, and openapi.json describes every route.
//
// # A lease and its client
//
// A client contends for a shard with one request, whose answer is a stream of the lease's
// states. The lease belongs to that stream: it ends when the stream does, and when the
// client has made no request that names the lease for its TTL, since a client that is
// stopped keeps its connections. Every write names the token that the client believes to
// have, so a client that was stopped meanwhile does not write under a later lease.
//
//	client killed            the lease takes no write once the connection is closed
//	client stopped, cut off  no later than the client's TTL after its last request
//	sidecar killed, stopped  its session is evicted after the TTL, as any member's is
//
// The lease is then given back in one write. What the store sees of it late is refused by
// the fence.
//
// # Effects
//
// The lease's ledger (package effect) calls a function that waits for the client: begin answers
// when the function runs, and end lets it return. Where the client does not end it in time, or the
// lease is over first, the function returns without knowledge, and the effect is in doubt.
//
// # Locks
//
// A lock (package lock) is a lease with a stream as well, which is over when it is lost. The answer
// comes when the client has it, so a client that waits needs no sign of life but its connection.
//
// # What it does not do
//
// It has one Elector, so one client at a time contends for a shard through it: a standby
// has its own sidecar. Any number waits for a lock. It serves nobody outside the machine,
// and knows no users: whoever may use it may contend for every shard and lock.
package sidecar

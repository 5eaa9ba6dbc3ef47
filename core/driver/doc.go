// Package driver is the contract between Tenure's core and a coordination
// store. Applications use package core; this package is for those who write or
// test a backend. It imports the standard library only.
//
// # The observed lease
//
// Stores differ in how they expire things, so Tenure asks a store only for what
// all of them do well: compare-and-set, and telling that something changed.
// Expiry lives in core (Gray and Cheriton's lease, timed the way Kubernetes
// candidates time theirs, ended by an explicit conditional write):
//
//   - A member has a record of its own, its session, that each heartbeat
//     ([Session.Beat]) changes. One heartbeat keeps everything the member owns.
//   - A member that has seen no change of another's record for that member's
//     TTL, on its own clock, may end it with [Session.Evict]: a conditional
//     delete of exactly the version it saw. A session id is never reused, so
//     absent means dead for ever.
//   - A shard has a record: its [Owner] (a session, or none, and the fencing
//     token). It is permanent, unless the shard is a lock (R2). It may be taken
//     when the owner is none, is a session without a member record, or by explicit
//     preemption; always by compare-and-set. The token of the new lease comes from
//     the store's revision of that write.
//   - Beside it each shard has a [Head]: the number of commits, the head of its
//     log, and the last nonce. Every commit compares and advances it.
//
// No wall clock is compared to expire anything, neither a client's nor a server's. The store's
// clock is read in one case: after its history forked, new tokens start from it (I2).
//
// # Rules
//
// Each rule has a permanent id (M1, A2, F1, ...), stated at the method that it
// binds. The conformance suite prints the id of a rule that a backend breaks.
//
// After a crash of the store every acknowledged write is still there, and so is everything that
// a read returned. There is one exception: where all members run on the machine that crashed,
// as with SQLite, the last heartbeats may be lost. A lost version is never used again.
//
// Some words: a record is current at a point of the store's order, which is the one order in
// which the store applies its writes. A fence is current while it names the shard's latest
// grant. The floor is the number below which no token is granted any more. Core's rules (C3,
// S16 and others) are in internal/fsm.
//
// Membership: M1 beat, M2 evict, M3 join, M4 update, I1 identity, I2 incarnation.
// Leases: A1 mutual exclusion, A2 monotonic tokens, A3 idempotent, A4
// independent, A5 transfer and preemption, A6 batch, R1 exact release, R2 locks.
// Fenced writes: F1 fenced commit, F2 two failures.
// Log: L1 order, L2 pages, L3 trim, L4 tail.
// Views: O1 state, O2 prompt, O3 quiet.
// Damage: D1 damaged records.
// Errors and resources: E1 closed error world, E2 no hidden retry, E3 no leak,
// E4 own connection for heartbeats and pings, and no waiting for a silent server, E5 denied,
// X1 context, P1 probe.
//
// # What it does not do
//
// A backend measures no time-outs, repeats no write, writes no log line, and decides nothing
// about members and leases: it answers what the store answered.
package driver

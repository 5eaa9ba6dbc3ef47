// Package driver is the contract between Tenure's core and a coordination store. Applications use
// package core; authors and testers of backends use this package. Package driver imports only the
// standard library.
//
// # The observed lease
//
// Stores differ in how they expire records. Tenure therefore needs only two things that all stores
// do well: compare-and-set, and notice of a change. Core handles expiry itself. Its lease is that
// of Gray and Cheriton. Members time it as Kubernetes candidates do, and end it with an explicit
// conditional write:
//
//   - Each member has its own record, the session, which each heartbeat ([Session.Beat]) changes.
//     One heartbeat keeps everything that the member owns.
//   - If a member's own clock shows no change of another member's record for that member's TTL, it
//     may end the session with [Session.Evict]. Evict is a conditional delete of exactly the
//     version that the member saw. A session id is never reused, so an absent session is
//     permanently dead.
//   - Each shard has a record, its [Owner], which contains the fencing token and at most one
//     session. The record is permanent unless the shard is a lock (R2). A member takes the shard by
//     compare-and-set if no session owns it, or if the owner has no member record. It can also
//     preempt the owner explicitly. The new lease's token comes from the store's revision of that
//     write.
//   - Each shard also has a [Head]: the number of commits, the head of its log, and the last
//     nonce. Every commit compares and advances it.
//
// Expiry depends on no wall clock, neither a client's nor a server's. Tenure reads the store's
// clock in one case only: after a fork of the store's history, new tokens start from it (I2).
//
// # Rules
//
// Each rule has a permanent id (M1, A2, F1, ...), stated at the method that it constrains. The
// conformance suite prints the id of a rule that a backend breaks.
//
// After a crash, the store still has every acknowledged write and everything that a read returned.
// There is one exception. If all members run on the machine that crashed, as with SQLite, the last
// heartbeats may be lost. A lost version is never reused.
//
// The rules use these terms: the store's order is the single order in which the store applies its
// writes. A record is current at a point of this order. A fence is current while it names the
// shard's latest grant. The floor is the number that all newly granted tokens exceed. Core's rules
// (C3, S16 and others) are in internal/fsm.
//
// Membership: M1 beat, M2 evict, M3 join, M4 update, I1 identity, I2 incarnation.
// Leases: A1 mutual exclusion, A2 monotonic tokens, A3 idempotent, A4
// independent, A5 transfer and preemption, A6 batch, R1 exact release, R2 locks, R3 history.
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
// A backend measures no time-outs, repeats no writes, logs nothing, and makes no decisions about
// members or leases. It returns the store's answers.
package driver

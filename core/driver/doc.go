// Package driver defines the contract between Tenure's core and a coordination store. Applications
// use package core. Authors and testers of backends use package driver. Package driver imports only
// the standard library.
//
// # The observed lease
//
// Stores expire records in different ways. Tenure therefore requires only two features that all
// stores implement well: compare-and-set and change notifications. Core handles expiry itself,
// using leases as Gray and Cheriton describe them. As in Kubernetes leader election, members time
// each other's leases. A member ends another member's lease with an explicit conditional write:
//
//   - Each member has its own record, the session. Each heartbeat ([Session.Beat]) changes the
//     record, which renews everything that the member owns.
//   - If member A sees no change to member B's record for B's TTL, by A's clock, A may end B's
//     session with [Session.Evict]. Evict deletes the record only if it still has exactly the
//     version that A saw. A session id is never reused, so an absent session is permanently dead.
//   - Each shard has a record, its [Owner], which contains the fencing token and at most one
//     session. The record is permanent unless the shard is a lock (R2). If no session owns the
//     shard, or if the owner has no member record, another member takes the shard by
//     compare-and-set. A member can also explicitly preempt the owner. In either case, the new
//     lease's token comes from the revision that the store assigns to the write.
//   - Each shard also has a [Head]: the number of commits, the head of its log, and the last nonce.
//     Every commit compares the head with the expected head, and advances the head.
//
// Expiry does not depend on the wall clock of any client or server. Tenure reads the store's clock
// only after a fork of the store's history, because new tokens then start from that clock (I2).
//
// # Rules
//
// Each rule has a permanent id (M1, A2, F1, ...) and is stated in the comment of the method that it
// constrains. If a backend breaks a rule, the conformance suite prints the rule's id.
//
// After a crash, the store still contains every acknowledged write and everything that a read has
// returned. Only the last heartbeats may be lost, and only if all members ran on the machine that
// crashed, as with SQLite. The version of a lost heartbeat is never reused.
//
// The rules use the following terms. The store's order is the single order in which the store
// applies its writes. A record is current at a particular point in this order. A fence is current
// while it identifies the shard's latest grant. The floor is the number that all newly granted
// tokens exceed. Core's rules (C3, S16 and others) are in internal/fsm.
//
// Membership: M1 beat, M2 evict, M3 join, M4 update, I1 identity, I2 incarnation.
// Leases: A1 mutual exclusion, A2 monotonic tokens, A3 idempotent, A4 independent, A5 transfer and
// preemption, A6 batch, R1 exact release, R2 locks, R3 history.
// Fenced writes: F1 fenced commit, F2 two failures.
// Log: L1 order, L2 pages, L3 trim, L4 tail.
// Views: O1 state, O2 prompt, O3 quiet.
// Damage: D1 damaged records.
// Errors: E1 closed error world, E2 no hidden retry, E5 denied.
// Resources: E3 no leak, E4 own connection for heartbeats and pings, and no waiting for a silent
// server, X1 context, P1 probe.
//
// # What it does not do
//
// A backend does not measure time-outs, retry writes, write logs, or make decisions about members
// or leases. A backend only returns the store's answers.
package driver

// Package fsm is the lease protocol as a pure state machine: no I/O, no clock,
// no goroutine, no global randomness. Package core runs it; applications use
// package core. Unstable until v1.
//
// [Machine.Step] takes one [Input] and an [Instant] and returns [Effect]s: calls
// to make, and leases granted, extended and revoked. The machine never waits; it
// says with [Machine.WakeAt] when it wants to be stepped next.
//
// # States
//
//	session:  idle -> joining -> live (trusted until) -> lost -> waiting -> joining ...
//	                               live <-> lapsed          any -> left, halted
//	peer:     heard (version, at) -> quiet for half its TTL: heartbeats every TTL/12
//	          -> silent for its TTL, proven by them -> my turn -> evicted
//	shard:    free -> (my turn) acquiring -> held -> draining -> releasing or
//	          transferring -> free;  held, draining -> revoked on lapse, fence,
//	          preemption, spent budget or loss of the session
//	lease:    granted -> revoked -> settled, once each
//	eligible <-> not eligible: held -> draining -> transferring or releasing, if somebody is
//
// # Replies
//
// The machine judges every reply, and the runner judges none: it carries out effects.
// A lease is revoked when it may not be used any more, and settled when its handler
// was joined and it is decided what became of the shard ([EffSettled]): released,
// transferred, lost, refused or unknown. A reply may decide that, or a view that comes
// before the reply or without one, or the end of the session; callers that wait for
// the lease learn the same outcome from each.
//
// # Time
//
// A holder trusts its leases until the instant before it sent its last successful
// heartbeat + TTL - margin. Another member evicts it, by the exact version of its
// record, after it saw no change for the holder's TTL, counted from when it
// received the last one. The reply comes after the sending, so the holder stops
// first whatever the network does; only the rates of the two clocks matter, and
// the margin covers their difference.
//
// # Level-triggered
//
// Whatever happens to a shard, a reply, a view, a timer, schedules it, and settle
// decides from its state alone what it needs next. There is no path that is right
// only for one order of events (rules C1, C2).
//
// # Rules
//
// The comments name a rule where the code exists because of it. A simulation of
// several machines over a faulty store, an exhaustive exploration and a fuzz target
// check them; each rule has been taken out to see the simulation fail.
//
// What a machine does:
//
//   - C1: a token that was given away or revoked is never granted here again. A
//     release, hand-over or close that names it gives it away, whatever a reply or a
//     view says later.
//   - C2: every view, reply and timer settles a record that names this session:
//     granted, handed to oneself for a new token, or released.
//   - C3: each attempt to join uses a fresh session. A join that finds its record
//     already there starts no trust.
//   - C4: every call has a time-out. A heartbeat that is unanswered after TTL/12 is
//     followed by another, by another connection where the backend has one; after
//     TTL/6 on a store that was slow of late, and within TTL/12 after a failure.
//   - C5: another member's silence counts only while own heartbeats prove that the
//     store serves. The join is one of them. All silence starts anew when one arrives
//     later than half of the smallest TTL watched after the sending of the one before,
//     and an eviction is sent only if the newest success is no older than that. While a
//     watched member has been quiet for half its TTL, heartbeats go out every TTL/12,
//     several outstanding, so that a slow store or a slow answer leaves no gap.
//   - C6: after a lapse of trust a member sends heartbeats only while small reads are
//     answered. They are those that it asked for since; without an answer it stays
//     silent, and may be evicted.
//   - C7: a lapse without an eviction leaves the shards where they are, each with a
//     new token first.
//   - C8: trust and budgets that ran out end before an input is handled.
//   - C9: candidates claim, and evict, in an order that all can work out: assignment,
//     recorded priority, rendezvous.
//   - C10: a late heartbeat's reply still counts, from its sending. Up to 24 are
//     outstanding: from the twelfth on they are a twelfth of the own TTL apart, however
//     short the TTLs watched. Of those sent after a lapse, three are.
//   - C11: a preempted or superseded holder notices by its view, at the latest by a
//     resync. Until then exclusion of trust is given up, never the fence.
//   - C12: the store ends up with the last state that this process reported of itself.
//     States have numbers, one call is under way at a time, repeated after a back-off
//     until one succeeds, and a join brings the newest. What others tell counts as the
//     newest of their records that was seen, and is no sign of life.
//   - C13: the session that released a shard is the last in the order of C9, so that
//     another claims at once. This holds as far as its release was seen; it claims in
//     its turn, so that no shard stays free. What this process was asked to give up,
//     without a successor named, goes to a standby in one write: the first heir, or the
//     only other member, that beat within half its TTL and is not draining. A shard
//     that its handler returned is released, as a standby's back-off (V4) holds for
//     claims only; so is one that came to a session that does not want it, so that it
//     wanders no further.
//   - C14: a member of the own node label whose record names the lock that this process
//     holds is evicted at once. The eviction names the version seen: its process has
//     ended, as a lock ends with its holder. One that beat after it was first seen is
//     alive, whatever the lock says, and evicted for silence only. A lock that is
//     missing, or is another, says nothing.
//   - C15: a member that is not eligible claims nothing, is passed over in the order of
//     C9, and gives its shards to the first eligible one. It does so in one write where
//     that one acts, else by a release. Without one it keeps them, also if the last one
//     goes while the handler returns. No other member knows which shards a member
//     wants, so what it gave and nobody took within half a TTL it claims again. A shard
//     is given at most once in BackoffMax, and twice as rarely each time that it came
//     back, until a member is eligible that was not before.
//   - C16: a holder gives its shards, likewise, to a member with a higher priority that
//     was eligible for Failback. That one was seen to live all the time, by this
//     process's clock and without a gap of its TTL. C15 and C16 leave the shards that
//     anybody named heirs for to the assigner that did.
//
// What holds for all of them together:
//
//   - S1: at most one process trusts its lease of a shard, but for C11.
//   - S2: tokens of a shard strictly increase in the order of the grants.
//   - S3: a write is accepted if and only if its fence is the current grant.
//   - S4: a lease is reported after a confirmed grant; what a lost reply did is read.
//   - S5: after any wait the grant is proven again.
//   - S6: a lease that was revoked is never valid again under the same token.
//   - S7: every call names exactly what it means; a stale one touches no later lease (M2, A5, R1).
//   - S8: trust counts from the instant at which the heartbeat was sent.
//   - S9: a lease is revoked before trust ends, and never valid after it.
//   - S10: a process that restarts is a new member.
//   - S11: handlers of a shard start and are joined one after the other.
//   - S12: a lease is given back after the work was joined, or not at all.
//   - S13: views inform; the store decides; the state is read anew on a timer.
//   - S14: a store that was replaced, or grants a token again, stops all grants.
//   - S15: a repeated, late or duplicated call changes nothing.
//   - S16: an error says not applied, applied, unknown, lost or fatal; any other means
//     unknown.
//
// Progress:
//
//   - V1: a takeover comes in bounded time.
//   - V2: no error ends contention for good.
//   - V3: load is bounded and jittered.
//   - V4: what ends soon after its start is tried again after a back-off.
//   - V5: one slow shard delays no other, and no heartbeat.
//   - V6: a stop hands back what it can, in bounded time.
//
// # What it does not do
//
// It does not write data: fenced commits are between core and the store, and
// depend on no trust. It assigns nothing: who should own what comes from outside,
// with InWant and InUnwant, and who claims a free shard first with InPrefer.
package fsm

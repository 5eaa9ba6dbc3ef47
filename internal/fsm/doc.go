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
// # Trust and silence
//
// A member trusts its leases until it sent its newest answered heartbeat, plus its TTL, less
// the margin. Another member counts its silence from the arrival of the newest change of its
// record, for the full TTL. A heartbeat is sent before it can be seen, so the holder stops
// before the other evicts, whatever the network does. Each of the two measures a time by its
// own clock, and no instant of one clock is compared with an instant of another: only their
// rates matter, and the margin covers the difference of the rates.
//
// A member is evicted by one that watched it for that long while the store served the one
// that watches. In a small cluster each member watches all others, in a large one a few
// neighbours (WatchAll, WatchFew). If the store is away, or slow to answer, nobody can tell a silent member from
// a store that takes no heartbeats; then silence proves nothing, and nobody is evicted. When
// the store is back, all silence counts from the beginning.
//
// Meanwhile each member's trust runs out, and with it the work under its leases. Its shards
// stay in its name: with the first answered heartbeat it gets new tokens for them. An outage
// costs the work of its duration, and no hand-over.
//
// An answer that comes late is worth what it says of the instant at which the call was sent.
// An answer that never comes costs a time-out; the call may have been applied, and the next
// view of the shard's record tells.
//
// # Tokens
//
// A token is for the store, which refuses a write under any but the newest grant of a shard.
// So a process that was paused in the middle of a write does no harm, although it still
// trusts its lease. A token protects nothing that is done outside the store.
//
// # The order of successors
//
// When a shard is free, or a member silent, the other members act one after the other: those
// that an assigner named (InPrefer), then by recorded priority, then by a hash of shard and
// node label that orders them differently for each shard. Each can work out its place by
// itself: it waits one RankDelay for each that comes before it, and up to half of one more, and
// acts if none of those has.
//
// A stop, or a request to give a shard up, drains it: the handler is asked to return, the
// lease stays valid for the drain budget, and then the shard is written over to a successor,
// or released. A crash and a pause are the same for the others: silence, eviction, a claim. A
// process that goes on after a pause ends its leases before it does anything else (C8), and the
// store refuses the writes that it had begun.
//
// # Level-triggered
//
// A reply, a view or a timer schedules each shard that it concerns, and settle decides from
// the shard's state alone what it needs next. There is no path that is right only for one
// order of events (rules C1, C2).
//
// # Rules
//
// Comments name a rule where code exists because of it. A simulation of several machines over
// a faulty store, an exhaustive exploration and a fuzz target check them; each rule has been
// taken out to see the simulation fail.
//
// What a machine does:
//
//   - C1: a token that was given away or revoked is never granted here again.
//
//     It is given away from when a release, hand-over or close that names it is sent,
//     whatever a reply or a view says later.
//
//   - C2: every view, reply and timer settles a record that names this session: granted,
//     handed to oneself for a new token, or released.
//
//   - C3: each attempt to join uses a fresh session.
//
//     A join that finds its record already there starts no trust.
//
//   - C4: every call has a time-out.
//
//     On the way to a grant, the join included, it begins with half a TTL, and doubles after
//     each call without an answer: one server of several may be silent. A call whose time was up
//     had no answer, whatever its error says, since connecting may take as long. A heartbeat without
//     an answer after TTL/12 is followed by another, over another connection where the
//     backend has one. On a store that was slow of late that is after TTL/6, so that not
//     every heartbeat is sent twice; after a failure within TTL/12.
//
//   - C5: another member's silence counts only while own heartbeats prove that the store
//     serves.
//
//     The join is one of them. All silence begins anew when an answer arrives later than half
//     of the smallest TTL watched after the sending of the answered heartbeat before. An
//     eviction is sent only if the newest answered heartbeat was sent no longer ago than
//     that. While a watched member has been quiet for half its TTL, heartbeats go out every
//     TTL/12 without waiting for answers, so that a slow store leaves no gap in the proof.
//
//   - C6: after a lapse of trust a member sends heartbeats only while its reads are answered.
//
//     Else a member whose requests arrive, and whose answers do not, would hold its shards
//     for ever. Without an answer it stays silent, and may be evicted. Reads end after half a
//     TTL, so that one at a silent server delays nothing, but for one at a time that has all of
//     CallTimeout, since connecting may take longer.
//
//   - C7: a lapse without an eviction leaves the shards where they are, each with a new token
//     first.
//
//   - C8: trust and budgets that ran out end before an input is handled.
//
//   - C9: candidates claim, and evict, in an order that all can work out: assignment,
//     recorded priority, rendezvous.
//
//     A member whose eviction succeeded reports it, once.
//
//   - C10: a late answer to a heartbeat counts from its sending.
//
//     Up to 24 heartbeats are without an answer at a time. From the twelfth on they are a
//     twelfth of the own TTL apart, however short the TTLs watched. After a lapse three are.
//
//   - C11: a preempted or superseded holder learns of it from its view, at the latest from a
//     resync.
//
//     Until then two processes may trust a lease of the shard. The fence holds all the same.
//
//   - C12: the store ends up with the last state that this process reported of itself.
//
//     States have numbers. One call is under way at a time, it is repeated after a back-off
//     until one succeeds, and a join brings the newest state. Of others the newest state that
//     was seen counts, and is no sign of life.
//
//   - C13: what this process gives up goes to somebody who takes it at once.
//
//     If it was asked to give a shard up and no successor was named, one write names a
//     standby: the first heir, or the only other member, if it beat within half its TTL and
//     is not draining. Without one the shard is released. Among those who then claim, the
//     session that released it is last, as far as they saw the release; it is among them, so
//     that no shard stays free. Two kinds of shard are released and never written over: one
//     that its handler returned, because the back-off (V4) that protects it would not hold a
//     standby back; and one that came to a session that does not want it, because it could
//     wander on.
//
//   - C14: a member with the own node label and the own host lock is evicted at once.
//
//     A lock ends with its process, and this process has it now, so the other one has ended.
//     The eviction names the version seen. A member that beat after it was first seen is
//     alive, and evicted for silence only. A missing lock, or another, says nothing.
//
//   - C15: a member that is not eligible claims nothing, is passed over in the order of C9,
//     and gives its shards to the first eligible one.
//
//     One write names that one if it acts, else the shard is released. If there is none, or
//     the last one goes while the handler returns, it keeps them. It does not know which
//     shards others want, so it claims again what it gave and nobody took within half a TTL.
//     It gives a shard at most once in BackoffMax, and half as often each time that the shard
//     came back, until a member becomes eligible that was not before.
//
//   - C16: a holder gives its shards, likewise, to a member with a higher priority that was
//     eligible for Failback.
//
//     For so long this process has seen it live, by its own clock, without a gap of the
//     other's TTL. Shards for which an assigner named heirs are the assigner's to move, and
//     C15 and C16 leave them where they are.
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

// Package fsm is the lease protocol as a pure state machine: no I/O, no clock,
// no goroutine, no global randomness. Package core runs it; applications use
// package core. Unstable until v1.
//
// [Machine.Step] takes one [Input] and an [Instant] and returns [Effect]s: calls
// to make, and leases granted, extended and revoked. The machine never waits; it
// says with [Machine.WakeAt] when it wants to be stepped next.
//
// # Words
//
//   - A member is a process that takes part. It joins under a session, which is never used
//     again, and its record in the store names the session, the node label and the TTL. A
//     heartbeat changes the version of that record.
//   - The shard's record names its owner: a session and a token. A grant writes both. A lease
//     is a grant as its owner sees it, and a fence is shard, session and token of a lease.
//   - The store serves views: the records of all members and shards at first (a resync), and
//     then those that changed. An eviction removes a member's record, and with it the session. The
//     shards that name that session are then free.
//   - The runner is package core. It makes the calls, and runs a handler for each lease. A
//     handler was joined when it has returned.
//   - A member is eligible unless its application says that it cannot serve now. It
//     reports that with its state: priority, weight, metadata, and whether it is draining.
//   - An assigner, such as package sharding, plans which member should own which shard. For a
//     shard it names the members that come first. A standby is a member that wants a shard which
//     another one owns.
//   - The host lock is a lock of the operating system that a process holds for its node label, if
//     it is told to. Its name is in the member's record.
//   - The TTL is the member's own unless the text names another. Where heartbeats have a pace, it
//     is the smaller of the own TTL and the smallest one watched. A heartbeat is sent every third
//     of it. Trust lapses when none was answered in time. The margin, a tenth of the TTL, is for
//     clocks that run at different rates. The drain budget, 10 s, is how long a handler may
//     take to return. RankDelay is at least 10 ms, and more on a store that is polled. These are
//     defaults, which core.Options describes.
//
// # States
//
//	session:  idle -> joining -> live (trusted until) -> lost -> waiting for a back-off -> joining
//	          live <-> lapsed (no answered heartbeat in time);  any -> left, or halted for good
//	peer:     heard (version, when) -> quiet for half its TTL: this member sends a heartbeat
//	          every TTL/12 -> silent for its TTL, proven by those -> (my turn) evicted
//	shard:    free -> (my turn) acquiring -> held -> draining -> releasing, or transferring
//	          to a successor -> free;  held, draining -> revoked when trust lapses, the store
//	          refuses the fence, the record names another lease, the drain budget is spent, or
//	          the session is lost
//	lease:    granted -> revoked -> settled, once each
//	member:   eligible <-> not eligible: what it holds drains to a member that is
//
// # Replies
//
// The machine judges every reply, and the runner judges none: it carries out effects.
// A lease is revoked when it may not be used any more, and settled when its handler
// was joined and it is decided what became of the shard ([EffSettled]): released,
// transferred, lost, refused or unknown. The reply may decide that; or a view, which may come
// before the reply or instead of it; or the end of the session. Callers that wait for the lease
// get the same outcome in each case.
//
// # Trust and silence
//
// A member trusts its leases for its TTL less the margin, from the instant at which it sent
// its newest answered heartbeat. Another member counts the silence of its record for the full
// TTL, from the instant at which it saw the record's newest change. A heartbeat is sent before
// it can be seen. So a holder that runs stops before another member evicts it, whatever the
// network does. Each of the two measures one duration by its own clock. No instant of one clock
// is compared with an instant of another: only the clocks' rates matter, and the margin
// covers how much they differ.
//
// A member evicts another that it has watched in silence for that one's TTL, if the store
// has served its own heartbeats all the time. In a small cluster each member watches all
// others, in a large one a few neighbours (WatchAll, WatchFew). When own heartbeats have no
// answer for half the smallest TTL watched, the store is away, or too slow: nobody can tell a
// silent member from a store that takes no heartbeats. Silence then proves nothing, and nobody
// is evicted. When the store answers again, all silence counts from the beginning.
//
// Meanwhile each member's trust runs out, and with it the work under its leases. Its shards
// stay in its name. When its reads and a heartbeat are answered again, it gets new tokens for
// them. An outage costs the work of its duration, and no hand-over.
//
// The answer to a heartbeat that comes late extends trust from the sending of that heartbeat,
// and so for less, or not at all. A call that has no answer costs its time-out. It may have
// been applied, which the next view of the record tells.
//
// # Tokens
//
// Each grant of a shard has a greater token than all before. The store accepts a write if its
// token is the one of the shard's newest grant, and refuses all others. A process that is stopped
// in the middle of a write cannot stop trusting its lease; the token makes its write harmless
// once another member has the shard. Until then the write is accepted, also after trust
// ended. So a token promises that the work of two owners never mixes, and no more. It protects
// nothing that is done outside the store.
//
// # The order of successors
//
// Members take turns to claim a free shard. Members that watch a silent member take turns, in the
// same way, to evict it. First come those that an assigner named for the shard
// (InPrefer), then higher recorded priority, then a hash of the shard, or of the silent
// session, and of the node label, so that the order differs from shard to shard. Each works out
// its own place. It waits one RankDelay for each member before it, three at the most, and up
// to half a RankDelay at random. It acts unless one of those has acted.
//
// A planned stop, or a request to give a shard up, drains it: the handler is asked to return.
// When it has, one write names a successor, or the shard is released. The lease stays
// valid for that long, up to the drain budget; then it is revoked, and the shard stays in this
// member's name until the handler returns or the process ends. A crash and a pause look alike to
// the others: silence, eviction, a claim. After a short pause nothing has run out. After one
// that outlasted trust, a process first revokes its leases (C8). What it had begun to write is
// refused if another member has the shard by then.
//
// # Level-triggered
//
// A reply, a view or a timer schedules each shard that it concerns, and settle decides from
// the shard's state alone what it needs next. There is no path that is right only for one
// order of events (C1, C2).
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
//     A token counts as given away from the moment at which the member sends a release or
//     hand-over that names it, or closes its session, whatever a reply or a view says later.
//
//   - C2: every view, reply and timer decides what becomes of a record that names this
//     session: the member serves it, gets a new token for it, or releases it.
//
//   - C3: each attempt to join uses a fresh session.
//
//     A join that finds its record already there starts no trust.
//
//   - C4: every call has a time-out.
//
//     The time-outs of a join and of a claim begin with half a TTL, since one server of several
//     may be silent. Each call without an answer doubles the next time-out, up to CallTimeout,
//     since the store may be slow, or slow to connect to. A call that spent all of its time
//     counts as one without an answer, also if its error says that it could not connect. A
//     heartbeat without an answer after TTL/12 is followed by another one, over another connection
//     where the backend has one. If answers have lately taken longer, the other one follows after
//     TTL/6, so that not every heartbeat is sent twice. One that failed is repeated within TTL/12.
//
//   - C5: another member's silence counts only while own heartbeats prove that the store
//     serves.
//
//     The proof is a chain, whose links are answered heartbeats and the join. Its limit is half
//     of the smallest TTL watched. If the answer to a heartbeat comes later than the limit after
//     the previous link was sent, the chain is broken, and all silence counts from the beginning.
//     An eviction is sent only within the limit after the newest link was sent. While a watched member has been
//     quiet for half its TTL, this member sends a heartbeat every TTL/12 without waiting for
//     answers, so that answers that take long break no chain.
//
//   - C6: after a lapse of trust a member sends heartbeats only while its reads are answered.
//
//     Else a member whose requests reach the store, while the store's answers do not reach it,
//     would hold its shards for ever. Without an answered read it sends no heartbeat, and may be
//     evicted. A read ends after half a TTL, so that a silent server delays nothing. One
//     read at a time has all of CallTimeout, since connecting may take longer.
//
//   - C7: after a lapse without an eviction a member keeps its shards, and gets a new token for
//     each before it serves it again.
//
//   - C8: each step first revokes the leases whose trust or drain budget has run out.
//
//   - C9: members claim, and evict, in an order that all can work out: assignment,
//     recorded priority, rendezvous hash.
//
//     A member whose eviction succeeded reports it, once.
//
//   - C10: a late answer to a heartbeat counts from its sending.
//
//     At most 24 heartbeats are unanswered at a time, and at most three after a lapse. From the
//     twelfth on their pace is that of the own TTL, also where a shorter one is watched.
//
//   - C11: a holder whose shard was taken from it learns of it from its view, at the latest from
//     a resync.
//
//     Another program may take a shard by a claim that preempts (driver.Claim); the machine never
//     does. Until the holder learns of it two processes trust a lease of the shard. The
//     fence holds all the same.
//
//   - C12: the store ends up with the last state that this member reported.
//
//     States have numbers. One call is under way at a time, it is repeated after a back-off
//     until one succeeds, and a join brings the newest state. Of another member only the newest
//     state is used. A new one is no sign of life: only heartbeats change the version that
//     silence looks at.
//
//   - C13: what this process gives up goes to a member that serves it at once.
//
//     If it was asked to give a shard up and no successor was named, one write names a
//     standby: the first that an assigner named, or the only other member, if its heartbeat was
//     seen within half its TTL and it is not draining. Else the shard is released, and the
//     members claim it in the order of C9. The one that released it comes last, for all that
//     saw the release; unless it leaves, it is among them, so that no shard stays free.
//     A shard whose handler returned without being asked is always released: the back-off of V4
//     would not hold a standby back. So is a shard that was handed to a session that does not
//     want it: it could be passed on for ever.
//
//   - C14: a member is evicted at once, without silence, if its record has this member's node
//     label and names the host lock that this process holds.
//
//     A lock ends with its process, and this process has it now, so the other one has ended.
//     The eviction names the version seen. A member that sent a heartbeat after it was first seen
//     is alive, and is evicted for silence only. A missing lock, or another, proves nothing.
//
//   - C15: a member that is not eligible claims no shard of others, is passed over in the order
//     of C9, and gives its shards to the first member that is.
//
//     One write names that member if its heartbeats arrive; else the shard is released. If no
//     member is eligible, or the last one leaves while the handler returns, the shard stays. The
//     giver does not know which shards others want. So it claims again what it gave if nobody took it
//     within half a TTL. It gives a shard at most once in BackoffMax, and half as often each
//     time that the shard came back. Another member that becomes eligible resets that.
//
//   - C16: a holder gives its shards likewise to a member with a higher priority, once that has
//     been eligible for the duration Failback.
//
//     The holder measures it by its own clock: it has seen the member's heartbeats for that long,
//     without a gap of the member's TTL. Neither C15 nor C16 moves a shard for which an assigner
//     named members: the assigner moves those.
//
//   - C17: a lock (driver.IsLock) is claimed at once, belongs to nobody for long, and is forgotten
//     when it is free.
//
//     Few members want it, and nobody knows which. So it is claimed without a turn while nobody
//     was seen to hold it, it is handed to no standby, and neither C15 nor C16 moves it. After a
//     release each member that wants it claims it in the order of C9 among itself and the last two
//     sessions that took the lock while it waited; the one that released it comes last. When the
//     session of its holder has ended, a member claims it in the order of C9, also where it does
//     not want it, and then releases it. A member forgets a lock that is free and that it does not
//     want, but for the greatest of the tokens forgotten: up to that one no token of a lock is
//     granted here without a new one (C1).
//
//   - C18: a member whose commits the store denies (E5) for two thirds of its TTL, without a success
//     between, is not eligible (C15) until a commit succeeds.
//
//     The runner measures it. Its own commits then fail without being sent, and it tries one under a
//     lock, at most once in BackoffMax. So leases do not circle where nobody may commit. If the
//     store also denies releases, the member sends no heartbeat while it holds a lease and
//     another member is eligible: the others evict it.
//
// What holds for all of them together (M2, A5 and R1 are rules of package driver):
//
//   - S1: at most one process trusts its lease of a shard, unless the former lease was ended without
//     waiting for silence: by a claim that preempts (C11), by a member that supersedes a label whose
//     process still runs (M3), by an operator's eviction, or by a store that lost grants (I2).
//   - S2: tokens of a shard strictly increase in the order of the grants.
//   - S3: a write is accepted if and only if its fence is the current grant.
//   - S4: a lease is reported after a confirmed grant; what a lost reply did is read from the
//     store.
//   - S5: after any wait the grant is proven again.
//   - S6: a lease that was revoked is never valid here again under the same token.
//   - S7: every call names exactly what it means; a stale one touches no later lease (M2, A5, R1).
//   - S8: trust counts from the instant at which the heartbeat was sent.
//   - S9: a lease is never valid after trust ends, whether or not the process could revoke it
//     by then.
//   - S10: a process that restarts is a new member.
//   - S11: in each process the handlers of a shard start and are joined one after the other.
//   - S12: a lease is given back after the work was joined, or not at all.
//   - S13: views inform; the store decides; the state is read anew on a timer.
//   - S14: a store that was replaced, or grants a token again, stops all grants.
//   - S15: a repeated, late or duplicated call changes nothing.
//   - S16: an error says not applied, applied, unknown, lost or fatal; one that says none of
//     them means unknown. A lease has at most one write with an unknown outcome, and numbers it
//     after a head that it saw: so what is reported as not applied takes no effect later.
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
// It does not write data. Fenced commits are between package core and the store, which compares
// the fence; they need no trust. Each has a number, so that core learns after a lost reply whether
// it was applied (core.Lease.Commit). It plans nothing: which shards this member wants comes
// from outside, with InWant and InUnwant, and so does the order of claims, with InPrefer.
package fsm

// Package fsm is the lease protocol as a pure state machine: no I/O, no clock,
// no goroutine, no global randomness. Package core runs it; applications use
// package core. Unstable until v1.
//
// [Machine.Step] takes one [Input] and an [Instant] and returns [Effect]s: calls to make, and
// leases granted, extended and revoked. The machine never waits. [Machine.WakeAt] returns the
// instant of the next step.
//
// # Words
//
//   - A member is a process that takes part. It joins under a session, whose id is never used
//     again. Its record in the store names the session, the node label and the TTL. A heartbeat
//     changes the version of that record.
//   - The shard's record names its owner: a session and a token. A grant writes both. A lease is
//     a grant as its owner sees it. A fence is the shard, session and token of a lease.
//   - The store serves views: first the records of all members and shards (a resync), and then
//     each record that changed. An eviction removes a member's record, and with it the session.
//     The shards that name that session are then free.
//   - The runner is package core. It makes the calls, and runs a handler for each lease. A
//     handler that has returned counts as joined.
//   - A member is eligible unless its application reports that it cannot serve now. The member
//     publishes its eligibility with its state: priority, weight, metadata, and whether it is
//     draining.
//   - An assigner, such as package sharding, plans which member should own which shard. For a
//     shard it names the members that come first. A standby is a member that wants a shard which
//     another member owns.
//   - The host lock is a lock of the operating system that a process may hold for its node label.
//     Its name is in the member's record.
//   - The TTL is the member's own unless the text names another. For the pace of heartbeats it is
//     the smaller of the member's own TTL and the smallest one watched. A heartbeat is sent every
//     third of it. If no heartbeat is answered in time, trust lapses. The margin, a tenth of the
//     TTL, is for clocks that run at different rates. The drain budget, 10 s, is how long a
//     handler may take to return. RankDelay is at least 10 ms, and more on a store that is
//     polled. These are defaults, which core.Options describes.
//
// # States
//
//	session:  idle -> joining -> live (trusted until) -> lost -> waiting for a back-off -> joining
//	          live <-> lapsed (no answered heartbeat in time);  any -> left or halted, permanently
//	peer:     heard (version, when) -> quiet for half its TTL: this member sends a heartbeat
//	          every TTL/12 -> silent for its TTL, proven by them -> (my turn) evicted
//	shard:    free -> (my turn) acquiring -> held -> draining -> releasing, or transferring
//	          to a successor -> free;  held, draining -> revoked when trust lapses, the store
//	          refuses the fence, the record names another lease, the drain budget is spent, or
//	          the session is lost
//	lease:    granted -> revoked -> settled, once each
//	member:   eligible <-> not eligible: its shards drain to an eligible member
//
// # Replies
//
// The machine judges every reply; the runner only carries out effects. A lease is revoked when it
// may no longer be used. It is settled ([EffSettled]) when its handler was joined and the fate of
// the shard is decided: released, transferred, lost, refused or unknown. The reply, a view before
// or instead of the reply, or the end of the session may decide it. Callers that wait for the
// lease get the same outcome in each case.
//
// # Trust and silence
//
// A member trusts its leases for its TTL less the margin, from the instant at which it sent its
// newest answered heartbeat. Another member counts the silence of its record for the full TTL,
// from the instant at which it saw the record's newest change. A heartbeat is sent before it can
// be seen. So a running holder stops before another member evicts it, whatever the network does.
// Each member measures one duration by its own clock. No instant of one clock is compared with an
// instant of another: only the clocks' rates matter, and the margin covers how much they differ.
//
// A member evicts another that it has watched in silence for that member's TTL, if the store has
// served its own heartbeats all the time. In a small cluster each member watches all others, in a
// large one a few neighbours (WatchAll, WatchFew). If own heartbeats have no answer for half the
// smallest TTL watched, the store is away or too slow. A silent member then looks like a store that
// takes no heartbeats. So silence proves nothing, and no member is evicted. When the store answers
// again, all silence counts from the beginning.
//
// During an outage each member's trust runs out, and its work under leases ends. Its shards keep
// its name in their records. When its reads and a heartbeat are answered again, it gets new
// tokens for them. So an outage stops work while it lasts and moves no shard.
//
// A late answer to a heartbeat extends trust from the sending of that heartbeat, so for less, or
// not at all. A call without an answer costs its time-out. It may have been applied; the next
// view of the record shows that.
//
// # Tokens
//
// Each grant of a shard has a greater token than all before. The store accepts a write if its
// token belongs to the shard's newest grant, and refuses all others. A process that is stopped in
// the middle of a write cannot stop trusting its lease. The token makes its write harmless once
// another member has the shard. Until then the store accepts the write, even after trust ended.
// So a token promises only that the work of two owners never mixes. It protects no work outside
// the store.
//
// # The order of successors
//
// Members take turns to claim a free shard. Members that watch a silent member take turns in the
// same way to evict it. First come the members that an assigner named for the shard (InPrefer),
// then higher recorded priority, then a hash. It is a hash of the node label and of the shard or
// the silent session, so that the order differs from shard to shard. Each member computes its own
// place. It waits one RankDelay for each member before it, three at most, and up to half a
// RankDelay at random. It acts unless a member before it has acted.
//
// A planned stop, or a request to give a shard up, drains it: the handler is asked to return.
// When it has returned, one write names a successor, or the shard is released. The lease stays
// valid until then, up to the drain budget. Then it is revoked, and the shard stays in this
// member's name until the handler returns or the process ends.
//
// A crash and a pause look alike to the others: silence, eviction, a claim. After a short pause
// nothing has run out. After a pause that outlasted trust, a process first revokes its leases
// (C8). If another member has the shard by then, the store refuses the writes that the process
// had begun.
//
// # Level-triggered
//
// A reply, a view or a timer schedules each shard that it concerns, and settle decides from
// the shard's state alone what it needs next. There is no path that is right only for one
// order of events (C1, C2).
//
// # Rules
//
// Comments name the rules that code exists for. A simulation of several machines over a faulty
// store, an exhaustive exploration and a fuzz target check them. Each rule has been removed once,
// to see the simulation fail.
//
// What a machine does:
//
//   - C1: a token that was given away or revoked is never granted here again.
//
//     A token counts as given away once the member sends a release or hand-over that names it, or
//     closes its session, whatever a reply or view shows later.
//
//   - C2: every view, reply and timer decides the fate of a record that names this session: the
//     member serves it, gets a new token, or releases it.
//
//   - C3: each attempt to join uses a fresh session.
//
//     A join that finds its record already there starts no trust.
//
//   - C4: every call has a time-out.
//
//     The time-outs of a join and of a claim begin with half a TTL, since one server of several
//     may be silent. Each call without an answer doubles the next time-out, up to CallTimeout,
//     since the store may be slow, or slow to connect to. A call that used all of its time counts
//     as unanswered, even if its error reports that it could not connect. If a heartbeat has no
//     answer after TTL/12, the member sends another, over another connection if the backend has
//     one. If answers have recently taken longer, it sends the other after TTL/6, so that not
//     every heartbeat is sent twice. A failed heartbeat is repeated within TTL/12.
//
//   - C5: another member's silence counts only while own heartbeats prove that the store
//     serves.
//
//     The proof is a chain, whose links are answered heartbeats and the join. Its limit is half
//     of the smallest TTL watched. If an answer comes later than the limit after the previous
//     link was sent, the chain is broken, and all silence counts from the beginning. An eviction
//     is sent only within the limit after the newest link was sent. Once a watched member has
//     been quiet for half its TTL, this member sends a heartbeat every TTL/12. It does not wait
//     for answers, so slow answers break no chain.
//
//   - C6: after a lapse of trust a member sends heartbeats only while its reads are answered.
//
//     Otherwise a member whose requests reach the store, but which gets no answers, would hold
//     its shards forever. Without an answered read it sends no heartbeat, and may be evicted. A
//     read ends after half a TTL, so that a silent server delays nothing. One read at a time has
//     all of CallTimeout, since connecting may take longer.
//
//   - C7: after a lapse without an eviction a member keeps its shards, and gets a new token for
//     each before it serves it again.
//
//   - C8: each step first revokes the leases whose trust or drain budget has run out.
//
//   - C9: members claim, and evict, in an order that each can compute: assignment, recorded
//     priority, rendezvous hash.
//
//     The member whose eviction succeeded reports it, once.
//
//   - C10: a late answer to a heartbeat counts from its sending.
//
//     At most 24 heartbeats are unanswered at a time, and at most three after a lapse. From the
//     twelfth on, the member's own TTL sets their pace, even if a shorter one is watched.
//
//   - C11: a holder whose shard was taken learns this from its view, at the latest from a resync.
//
//     Another program may take a shard by a claim that preempts (driver.Claim); the machine never
//     does. Until the holder learns of it, two processes trust a lease of the shard. The fence
//     still works.
//
//   - C12: the store ends up with the last state that this member reported.
//
//     States have numbers. One call is in progress at a time. It is repeated after a back-off
//     until one succeeds, and a join brings the newest state. Of another member only the newest
//     state is used. A new state is no sign of life: only heartbeats change the version by which
//     silence is measured.
//
//   - C13: a shard that this process gives up goes to a member that serves it immediately.
//
//     If the process was asked to give a shard up and no successor was named, one write names a
//     standby. This is the first member that an assigner named, or the only other member. Its
//     heartbeat must have been seen within half its TTL, and it must not be draining. Otherwise
//     the shard is released, and the members claim it in the order of C9. The member that
//     released it comes last, for all that saw the release. Unless it leaves, it is among them,
//     so that no shard stays free.
//
//     Two kinds of shards are always released. If a handler returned without being asked, the
//     back-off of V4 would not hold a standby back. If a shard was handed to a session that does
//     not want it, it could be passed on forever.
//
//   - C14: a member is evicted without waiting for silence if its record has this member's node
//     label and names the host lock that this process holds.
//
//     A lock ends with its process. This process has it now, so the other process has ended. The
//     eviction names the version seen. A member that sent a heartbeat after it was first seen is
//     alive, and is evicted for silence only. A missing or different lock proves nothing.
//
//   - C15: a member that is not eligible claims no shard of others, is passed over in the order
//     of C9, and gives its shards to the first member that is.
//
//     If that member's heartbeats arrive, one write names it; otherwise the shard is released. If
//     no member is eligible, or the last one leaves while the handler returns, the shard stays.
//     The giver does not know which shards others want, so it claims its shard again if no member
//     took it within half a TTL. It gives a shard at most once in BackoffMax, and half as often
//     each time that the shard came back. When another member becomes eligible, the interval is
//     BackoffMax again.
//
//   - C16: a holder also gives its shards to a member with a higher priority that has been
//     eligible for the duration Failback.
//
//     The holder measures Failback by its own clock: it has seen the member's heartbeats for that
//     long, without a gap of the member's TTL. Neither C15 nor C16 moves a shard for which an
//     assigner named members: the assigner moves it.
//
//   - C17: a lock (driver.IsLock) is claimed immediately, held briefly, and forgotten when it is
//     free.
//
//     Few members want a lock, and no member knows which. So members claim it without a turn
//     while no holder is known. It is handed to no standby, and neither C15 nor C16 moves it.
//
//     After a release each member that wants the lock claims it in the order of C9. That order
//     has itself and the last two sessions that took the lock while it waited. The session that
//     released it comes last. If the holder's session has ended, a member claims the lock in the
//     order of C9, even if it does not want it, and then releases it.
//
//     A member forgets a free lock that it does not want. It keeps only the greatest token of all
//     forgotten locks. Up to that token, a lock's token is not granted here without a new one
//     (C1).
//
//   - C18: a member whose commits the store denies (E5) for two thirds of its TTL, without a success
//     between, is not eligible (C15) until a commit succeeds.
//
//     The runner measures it. The member's commits then fail without being sent. The runner tries
//     a commit under a lock, at most once in BackoffMax. So leases do not circulate where no
//     member may commit. If the store also denies releases, the member sends no heartbeat while
//     it holds a lease and another member is eligible: the others evict it.
//
// The machines together guarantee (M2, A5 and R1 are rules of package driver):
//
//   - S1: at most one process trusts its lease of a shard, except if the former lease was ended
//     without waiting for silence. Such an end is a claim that preempts (C11), a member that
//     supersedes a label whose process still runs (M3), an operator's eviction, or a store that
//     lost grants (I2).
//   - S2: tokens of a shard strictly increase in the order of the grants.
//   - S3: a write is accepted if and only if its fence is the current grant.
//   - S4: a lease is reported after a confirmed grant. The effect of a call whose reply was lost
//     is read from the store.
//   - S5: after any wait the grant is proven again.
//   - S6: a revoked lease is never valid here again under the same token.
//   - S7: every call names exactly the lease or record that it means. A stale call touches no
//     later lease (M2, A5, R1).
//   - S8: trust counts from the instant at which the heartbeat was sent.
//   - S9: a lease is never valid after trust ends, even if the process has not revoked it yet.
//   - S10: a process that restarts is a new member.
//   - S11: in each process a shard's handler starts only after the one before it was joined.
//   - S12: a lease is given back after the work was joined, or not at all.
//   - S13: views inform, and the store decides. A timer makes each member read the state again.
//   - S14: if the store was replaced, or grants a token again, all grants stop.
//   - S15: a repeated, late or duplicated call changes nothing.
//   - S16: an error means not applied, applied, unknown, lost or fatal. An error that means none
//     of them counts as unknown. A lease has at most one write with an unknown outcome, and
//     numbers it after a head that it saw. So a write that was reported as not applied takes no
//     effect later.
//
// Progress:
//
//   - V1: a takeover comes in limited time.
//   - V2: no error ends contention permanently.
//   - V3: load is limited and jittered.
//   - V4: a lease that ends soon after its start is tried again after a back-off.
//   - V5: one slow shard delays no other, and no heartbeat.
//   - V6: a stop hands back all shards that it can, in limited time.
//
// # What it does not do
//
// It does not write data. Fenced commits are between package core and the store, which compares
// the fence; they need no trust. Each has a number, so that core learns after a lost reply
// whether it was applied (core.Lease.Commit). It plans nothing. InWant and InUnwant name the
// shards that this member wants, and InPrefer gives it the order of claims.
package fsm

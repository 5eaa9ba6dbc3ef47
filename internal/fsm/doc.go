// Package fsm implements the lease protocol as a pure state machine, without I/O, clocks,
// goroutines or global randomness. Package core runs the machine. Applications use package core.
// Package fsm is unstable until v1.
//
// [Machine.Step] takes one [Input] and an [Instant], and returns [Effect]s: the calls to make, and
// the leases that were granted, extended or revoked. The machine never waits. [Machine.WakeAt]
// returns when the next step is due.
//
// # Words
//
//   - A member is a process in the namespace. A member joins under a session, whose id is never
//     reused. The member's record in the store contains the session, the node label and the TTL.
//     Each heartbeat changes the version of that record.
//   - The shard's record contains its owner: a session and a token. A grant writes a session and a
//     token to the record. A lease is a grant from its owner's point of view. A fence is the shard,
//     session and token of a lease.
//   - The store serves views. The first view contains the records of all members and shards (a
//     resync). Each later view contains the changed records. An eviction removes a member's record,
//     which ends the session. The shards whose records contain that session are then free.
//   - The runner, package core, makes the calls to the store, and runs a handler for each lease. A
//     handler that has returned counts as joined.
//   - A member is eligible unless its application reports that the member cannot serve now. The
//     member publishes its eligibility with its state: priority, weight, metadata, and whether it
//     is draining.
//   - An assigner, such as package sharding, plans which member should own which shard. For each
//     shard, the assigner chooses the members that claim first. A standby is a member that wants a
//     shard that another member owns.
//   - The host lock is an operating-system lock that a process may hold for its node label. The
//     member's record contains the name of the lock.
//   - Unless the text says otherwise, "the TTL" is the member's own TTL. The interval between
//     heartbeats is a third of the member's TTL or, if smaller, of the smallest TTL that the member
//     watches. If the store answers no heartbeat before trust runs out, trust lapses. The margin, a
//     tenth of the TTL, allows for clocks that run at different rates. The drain budget, 10 s, is
//     how long a handler may take to return. RankDelay is at least 10 ms, and is longer on a polled
//     store. core.Options describes these defaults.
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
// The machine interprets every reply. The runner only carries out effects. A lease is revoked when
// it may no longer be used. A lease is settled ([EffSettled]) when its handler has been joined and
// its outcome is decided: released, transferred, lost, refused or unknown. The outcome may come
// from the reply, from the end of the session, or from a view that arrives before or instead of the
// reply. All callers that wait for the lease get the same outcome.
//
// # Trust and silence
//
// A member trusts its leases for its TTL minus the margin, beginning when it sent its newest
// answered heartbeat. Other members wait for the full TTL, beginning when they saw the newest
// change to the member's record. A member sends a heartbeat before other members can see it. A
// running holder therefore stops before another member evicts it, regardless of the network. Each
// member measures durations by its own clock, and never compares times from different clocks. Only
// the rates of the clocks matter, and the margin covers their difference.
//
// If a member has been silent for its TTL, another member evicts it, provided that the store has
// served the evictor's heartbeats throughout that time. In a small cluster, each member watches all
// others. In a large cluster, each member watches a few neighbors (WatchAll, WatchFew). If a
// member's heartbeats are unanswered for half the smallest watched TTL, the store is unreachable or
// too slow. The store may then also have caused the other members' silence. Silence therefore
// proves nothing, and this member evicts no other. When the store answers again, the member
// measures every silence from zero again.
//
// During an outage, each member's trust runs out, and its work under leases ends. The records of
// the member's shards still contain its session. When the store again answers the member's reads
// and a heartbeat, the member gets new tokens for its shards. An outage therefore stops work while
// it lasts, but does not move shards.
//
// Trust is measured from when the heartbeat was sent, so a slower answer extends trust by a shorter
// time. A very late answer does not extend trust. An unanswered call costs only its time-out. The
// next view of the affected record shows whether the call was applied.
//
// # Tokens
//
// Each grant of a shard has a higher token than all earlier grants. The store accepts a write if
// its token belongs to the shard's newest grant, and refuses all other writes. A process that is
// stopped in the middle of a write cannot notice that its trust has ended. Once another member has
// the shard, the token makes that write harmless. Until then, the store accepts the write, even
// after trust has ended. A token therefore guarantees only that the work of two owners never mixes.
// Tokens do not protect work outside the store.
//
// # The order of successors
//
// Members take turns to claim a free shard. In the same way, the members that watch a silent member
// take turns to evict it. The members that an assigner chose for the shard (InPrefer) come first.
// The other members follow by recorded priority. Members of equal priority follow by a hash of the
// node label and the shard or silent session. The order therefore differs from shard to shard. Each
// member computes its place in the order. The member waits one RankDelay for each preceding member
// (at most three), plus a random time of up to half a RankDelay. The member then acts unless a
// preceding member has acted.
//
// A planned stop, or a request to give up a shard, drains the shard by asking the handler to
// return. When the handler has returned, one write passes the shard to a successor or releases it.
// The lease stays valid until then, up to the drain budget. After the drain budget, the lease is
// revoked, and the shard stays in this member's name until the handler returns or the process ends.
//
// The other members cannot distinguish a crash from a pause. In either case, they see silence, an
// eviction and a claim. After a short pause, a process continues its work. After a pause that
// lasted longer than its trust, a process first revokes its leases (C8). If another member then has
// the shard, the store refuses the writes that the process had begun.
//
// # Level-triggered
//
// Replies, views and timers schedule the shards that they concern. The function settle decides from
// the shard's state alone which step the shard needs next. No code path depends on a particular
// order of events (C1, C2).
//
// # Rules
//
// Comments cite the rules that the code implements. The rules are checked by a simulation of
// several machines with a faulty store, by an exhaustive exploration and by a fuzz target. Each
// rule was removed from the code once, to confirm that the simulation then fails.
//
// The rules for one machine:
//
//   - C1: a token that was given away or revoked is never granted here again.
//
//     A token counts as given away when the member closes its session, or sends a release or
//     hand-over of the token. Later replies and views do not change this.
//
//   - C2: after every view, reply or timer, the machine handles each record that names this
//     session: the member serves the shard, gets a new token, or releases it.
//
//   - C3: each attempt to join uses a fresh session.
//
//     A join that finds its record already in the store does not start trust.
//
//   - C4: every call has a time-out.
//
//     The first time-out of a join or claim is half a TTL, because one of several servers may be
//     silent. Each unanswered call doubles the next time-out, up to CallTimeout, because the store
//     or the connection setup may be slow. A call that used up its time-out counts as unanswered,
//     even if it reports that it could not connect. If a heartbeat is unanswered after TTL/12, the
//     member sends a second heartbeat, over a different connection if the backend has one. If
//     answers have recently taken longer, the member sends the second heartbeat after TTL/6, so
//     that it does not send every heartbeat twice. The member repeats a failed heartbeat within
//     TTL/12.
//
//   - C5: another member's silence counts only while this member's heartbeats prove that the store
//     is serving.
//
//     The proof is a chain of links: the join and the answered heartbeats. The limit between two
//     links is half of the smallest watched TTL. If the next answer arrives later than this limit
//     after the previous link was sent, the chain breaks. The measurement of every silence then
//     restarts. The member sends an eviction only within the limit after it sent the newest link.
//     Once a watched member has been quiet for half its TTL, this member sends a heartbeat every
//     TTL/12. The member does not wait for the answers, so slow answers do not break the chain.
//
//   - C6: after a lapse of trust, a member sends heartbeats only while its reads are answered.
//
//     Without this rule, a member whose requests reach the store, but whose answers are lost, would
//     hold its shards forever. Without an answered read, the member sends no heartbeat, and may be
//     evicted. A read ends after half a TTL, so that a silent server causes no delay. One read at a
//     time may take all of CallTimeout, because connecting may take longer than half a TTL.
//
//   - C7: after a lapse without an eviction, a member keeps its shards, and gets a new token for
//     each shard before it serves the shard again.
//
//   - C8: each step first revokes the leases whose trust or drain budget has run out.
//
//   - C9: members claim and evict in an order that each member can compute: assignment, recorded
//     priority, rendezvous hash.
//
//     Only the member whose eviction succeeded reports the eviction, and only once.
//
//   - C10: a late answer to a heartbeat extends trust from when the heartbeat was sent.
//
//     At most 24 heartbeats may be unanswered at the same time, and at most three after a lapse.
//     From the twelfth unanswered heartbeat on, the member's own TTL determines the interval, even
//     if the member watches a shorter TTL.
//
//   - C11: a holder whose shard was taken learns of the loss from a view, at the latest from a
//     resync.
//
//     The machine never preempts, but another program may take a shard with a preempting claim
//     (driver.Claim). Until the holder learns of the claim, two processes trust a lease of the
//     shard. The fence still protects the shard's writes.
//
//   - C12: the store ends up with the last state that this member reported.
//
//     The machine numbers the states, and makes one update at a time. The machine repeats the
//     update after a back-off until the update succeeds. A join also publishes the newest state.
//     The machine uses only the newest state of another member. A new state is not a sign of life,
//     because only heartbeats change the version from which members measure silence.
//
//   - C13: a shard that this process gives up goes to a member that serves the shard immediately.
//
//     If the process was asked to give up a shard and no successor was given, one write passes the
//     shard to a standby. The standby is the first member that an assigner chose, or the only other
//     member. The standby must not be draining, and its last heartbeat must have been seen within
//     half its TTL. If there is no such standby, the shard is released, and the members claim it in
//     the order of C9. Each member that saw the release puts the releaser last in this order.
//     Unless the releaser leaves, it also claims the shard, so that no shard stays free.
//
//     A shard whose handler returned without being asked is always released, because the back-off
//     of V4 would not hold back a standby. A shard that was handed to a session that does not want
//     it is also released. If such sessions passed the shard to a standby, they could pass it on
//     forever.
//
//   - C14: a member is evicted without waiting for silence if its record has this member's node
//     label and names the host lock that this process holds.
//
//     A process's lock ends with the process. If this process has the lock, the other process has
//     ended. The eviction applies only to the record version that this member saw. A member that
//     has sent a heartbeat since it was first seen is alive, and can be evicted only for silence. A
//     missing or different lock proves nothing.
//
//   - C15: a member that is not eligible claims no shards of others, is passed over in the order of
//     C9, and gives its shards to the first eligible member.
//
//     If heartbeats of the eligible member are arriving, one write passes the shard to that member.
//     Otherwise, the shard is released. If no member is eligible, or the last eligible member
//     leaves before the handler has returned, the giver keeps the shard. The giver does not know
//     which shards other members want. The giver therefore claims a shard again if no member took
//     it within half a TTL. The giver gives away a shard at most once per BackoffMax, and half as
//     often after each return of that shard. When another member becomes eligible, the interval is
//     BackoffMax again.
//
//   - C16: a holder also gives its shards to a member with a higher priority that has been
//     eligible for the duration Failback.
//
//     The holder measures Failback by its own clock. The holder must have seen the member's
//     heartbeats for that long, without a gap as long as the member's TTL. If an assigner chose
//     members for a shard, only the assigner moves the shard, so C15 and C16 do not apply.
//
//   - C17: a lock (driver.IsLock) is claimed immediately, held briefly, and forgotten when it is
//     free.
//
//     Few members want a lock, and no member knows which other members want it. While no holder is
//     known, members therefore claim a lock without waiting for a turn. A lock is never handed to a
//     standby, and neither C15 nor C16 moves it.
//
//     After a release, each member that wants the lock claims it in the order of C9. That order
//     includes only this member and the last two sessions that took the lock while this member
//     waited. The session that released the lock comes last. If the holder's session has ended, a
//     member claims the lock in the order of C9, and releases a lock that it does not want.
//
//     A member forgets a free lock that it does not want, and keeps only the greatest token of all
//     forgotten locks. If a lock's token does not exceed that greatest token, the machine gets a
//     new token before it grants the lock (C1).
//
//   - C18: a member whose commits the store denies (E5) for two thirds of its TTL, without a
//     success in between, is not eligible (C15) until a commit succeeds.
//
//     The runner measures how long the store denies the commits. A denied commit of that
//     member then fails without a retry. The runner tries a commit under a lock, at most once per
//     BackoffMax. Therefore, leases do not circulate if no member may commit. If the store also
//     denies releases, the member sends no heartbeat while it holds a lease and another member is
//     eligible, so the others evict it.
//
// The machines together guarantee the following (M2, A5 and R1 are rules of package driver):
//
//   - S1: at most one process trusts its lease of a shard, except if the former lease was ended
//     without waiting for silence. Such an end has four possible causes: a preempting claim (C11),
//     superseding a label whose process still runs (M3), an operator's eviction, and a store that
//     lost grants (I2).
//   - S2: tokens of a shard strictly increase in the order of the grants.
//   - S3: a write is accepted only if its fence is the current grant.
//   - S4: a lease is reported only after a confirmed grant. After a lost reply, the machine learns
//     the effect of the call from the store.
//   - S5: after any wait, the machine proves the grant again before it is used.
//   - S6: a revoked lease is never valid here again under the same token.
//   - S7: every call names exactly the lease or record that it acts on. A stale call does not
//     affect later leases (M2, A5, R1).
//   - S8: a lease is trusted from the instant at which the heartbeat was sent.
//   - S9: a lease is never valid after trust ends, even if the process has not revoked it yet.
//   - S10: a process that restarts is a new member.
//   - S11: in each process, a shard's handler starts only after its previous handler was joined.
//   - S12: a lease is never given up before its work was joined.
//   - S13: views are only information; the store decides. A timer makes each member reread the full
//     state.
//   - S14: if the store was replaced, or grants a token twice, all grants stop.
//   - S15: a repeated, late or duplicated call changes nothing.
//   - S16: an error means not applied, applied, unknown, lost or fatal. Any other error counts as
//     unknown. A lease has at most one write with an unknown outcome, and numbers this write after
//     a head that it saw. A write that was reported as not applied therefore takes no effect later.
//
// The machines also guarantee progress:
//
//   - V1: a takeover happens within a limited time.
//   - V2: no error ends contention permanently.
//   - V3: load on the store is limited, and spread by jitter.
//   - V4: a shard whose lease ends soon after its start is claimed again after a back-off.
//   - V5: a slow shard delays neither other shards nor heartbeats.
//   - V6: a stop takes a limited time, and gives up all shards that it can.
//
// # What it does not do
//
// The machine does not write data. Package core sends fenced commits to the store, which compares
// the fence. Commits do not depend on trust. After a lost reply, the commit's number shows core
// whether the store applied the commit (core.Lease.Commit). The machine does not plan. InWant and
// InUnwant determine which shards this member wants, and InPrefer gives the order of the claims.
package fsm

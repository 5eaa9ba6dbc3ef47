package fsm

import (
	"time"

	"github.com/tenure-go/tenure/core/driver"
)

// An Instant is a duration since the process started, by a clock that never
// steps and that counts the time the machine was suspended. Wall time cannot
// enter the machine.
type Instant time.Duration

// Never is later than every instant.
const Never = Instant(1<<63 - 1)

// Add returns the instant d later.
func (t Instant) Add(d time.Duration) Instant { return t + Instant(d) }

// Sub returns the time from u to t.
func (t Instant) Sub(u Instant) time.Duration { return time.Duration(t - u) }

// Config is what the machine is made with. All durations must be positive
// unless a zero is given a meaning; core.Options has the defaults and checks how
// they relate.
type Config struct {
	// Member is what this process tells the others, until InUpdate; its Session is filled
	// in anew at each attempt to join, from NewSession.
	Member     driver.Member
	NewSession func() driver.SessionID // an id never used before; C3

	Interval     time.Duration // between two heartbeats, TTL/3
	Jitter       float64       // share of Interval taken off at random, 0 to 0.5
	Margin       time.Duration // taken off the TTL to give the trust window
	DrainBudget  time.Duration // for a handler to return, then the lease is revoked
	AbandonAfter time.Duration // after a revocation, release although the handler runs; 0: never
	Resync       time.Duration // between two full reads of the namespace (C2, S13)
	CallTimeout  time.Duration // of every call but heartbeats
	RankDelay    time.Duration // between the candidates for one shard or eviction (C9)
	BackoffMin   time.Duration // first wait after a failed join or a lease given back
	BackoffMax   time.Duration // longest such wait; they double
	WatchAll     int           // up to so many other members, all are watched
	WatchFew     int           // above, this many predecessors by session id
	Seed         uint64        // of jitter and back-off

	// HostLock is the identity of the lock that this process holds, which ends with it;
	// empty if it holds none (C14).
	HostLock string

	// Ineligible is why this process is not eligible, until InEligible; empty: it is (C15).
	Ineligible string
	// Failback is how long a member with a higher priority has to live, and to be eligible,
	// until it is given what this process holds (C16). 0: never.
	Failback time.Duration
}

// HostLockKey is the key of MemberState.Meta under which the others learn HostLock.
const HostLockKey = "_lock"

// CallID names one outstanding call. Its reply carries it; replies to a call
// that is not outstanding any more, duplicates included, are ignored.
type CallID uint64

// InputKind says what an Input is.
type InputKind uint8

// The inputs, and which fields of Input they use.
const (
	// InWake: only time has passed. Expected at or after Machine.WakeAt.
	InWake InputKind = iota
	// InWant: this process wants Shard, or all of Shards. What is free it claims after
	// Wait at the earliest.
	InWant
	// InUnwant: it does not want Shard, or Shards, any more. A held lease drains, and
	// is then handed to session To if that is not empty and alive, else released.
	InUnwant
	// InDrained: the handler that was started for the Grant of Shard and Token has
	// returned and been joined.
	InDrained
	// InStalled: the handler of Shard and Token makes no progress; the lease is
	// revoked as if its drain budget were spent.
	InStalled
	// InFenced: a commit under Shard and Token was refused; Owner is the record
	// that refused it, zero if unknown.
	InFenced
	// InObserved: a page of changes, View, asked for at instant SentAt.
	InObserved
	// InJoined to InClosed answer the effect with the same Call. Err is the
	// call-level error.
	InJoined
	InBeaten
	InAcquired    // Results, one per claim
	InTransferred // Results, one per hand-over
	InReleased
	InEvicted // Evictions, one per suspect
	InUpdated
	InRead
	InClosed
	// InLeave: this process gives up its session for good. What is still held is
	// revoked; the record is removed if no handler runs, else left to be evicted.
	InLeave
	// InStoreChanged: a call that is not the machine's own was answered with Err,
	// which matches driver.ErrStoreChanged (I1).
	InStoreChanged
	// InPrefer: Heirs says, for each of Shards, who claims it first when it is free
	// (C9), wanted here or not. Advice: a heir that does not live, or does not act,
	// is passed over.
	InPrefer
	// InUpdate: this process tells the others State from now on. Its number is the
	// machine's to give.
	InUpdate
	// InEligible: from now on this process is not eligible, because of Reason; it is if
	// that is empty (C15).
	InEligible
)

// Heirs are the sessions that claim a shard before all others, in this order.
// Empty ones, and those that do not live, are passed over.
type Heirs [2]driver.SessionID

// Input is one thing that happened. Which fields count depends on Kind.
type Input struct {
	Kind      InputKind
	Shard     driver.ShardID
	Shards    []driver.ShardID
	Heirs     []Heirs
	Token     driver.Token
	To        driver.SessionID
	Owner     driver.Owner
	View      *driver.View
	SentAt    Instant
	Call      CallID
	Err       error
	Results   []driver.AcquireResult
	Evictions []driver.EvictResult
	State     driver.MemberState
	Wait      time.Duration
	Reason    string
}

// EffectKind says what an Effect asks for or reports.
type EffectKind uint8

// The effects, and which fields of Effect they use.
const (
	// EffJoin to EffClose ask for one call each, in the name of Session, with
	// Timeout. The runner answers every one of them exactly once, and judges no reply.
	EffJoin EffectKind = iota + 1 // Member
	EffBeat
	EffAcquire  // Claims
	EffTransfer // Transfers
	EffRelease  // Fences
	EffEvict    // Suspects
	EffUpdate   // State
	// EffRead asks for one small linearizable read, of anything: that it is answered
	// is all that counts (C6).
	EffRead
	// EffClose asks to close Session.
	EffClose
	// EffResync asks to read the whole namespace anew: to end the Observe call
	// under way and to start one with an empty cursor. A call with an empty cursor
	// that is under way is left to end, and another follows it.
	EffResync
	// EffGrant: Fence is granted until Until. Head is the shard's head if HeadKnown.
	EffGrant
	// EffExtend: all leases of Session are trusted until Until.
	EffExtend
	// EffRevoke: Fence may not be used any more, because of Cause.
	EffRevoke
	// EffSettled: the lease of Fence is over, as Outcome says. It comes exactly once for
	// each EffGrant: after the EffRevoke, after the handler was joined, and before the
	// next EffGrant of the shard. It fixes what callers that wait for the lease are
	// answered, whether a reply, a view or the end of the session decided it.
	EffSettled
	// EffYield: the handler of Fence is to be asked to stop, because of Cause: the shard
	// goes to another member, although this process still wants it.
	EffYield
	// EffEvent: something an operator wants to see: Event, Peer, Err, Cause.
	EffEvent
)

// Effect is one thing that the runner has to do. The slices belong to the
// receiver.
type Effect struct {
	Kind      EffectKind
	Call      CallID
	Timeout   time.Duration
	Session   driver.SessionID
	Member    driver.Member
	Claims    []driver.Claim
	Transfers []driver.Transfer
	Fences    []driver.Fence
	Suspects  []driver.Suspect
	State     driver.MemberState
	Fence     driver.Fence
	Owner     driver.Owner
	Head      driver.Head
	HeadKnown bool
	Until     Instant
	Cause     Cause
	Outcome   Outcome
	Event     Event
	Peer      driver.Member
	Err       error
}

// Cause says why a lease ended.
type Cause uint8

// The causes of a Revoke.
const (
	CauseReleased     Cause = iota + 1 // its handler was asked to stop, and returned
	CauseReturned                      // its handler returned though it was wanted
	CauseLapsed                        // no heartbeat succeeded in time: trust ended
	CauseFenced                        // the store refused a write under it
	CausePreempted                     // the record names another lease
	CauseSessionLost                   // the session was evicted or superseded
	CauseDrainBudget                   // its handler did not return in time
	CauseStalled                       // its handler made no progress
	CauseLeft                          // the process left before its handler returned
	CauseStoreChanged                  // the store is not the one it was
	CauseIneligible                    // its handler returned, and an eligible member is to have the shard
	CauseFailback                      // its handler returned, and one with a higher priority is
)

var causeNames = [...]string{
	CauseReleased: "asked to stop", CauseReturned: "handler returned", CauseLapsed: "trust lapsed",
	CauseFenced: "fenced", CausePreempted: "preempted", CauseSessionLost: "session lost",
	CauseDrainBudget: "drain budget spent", CauseStalled: "stalled", CauseLeft: "run ended",
	CauseStoreChanged: "store changed", CauseIneligible: "not eligible", CauseFailback: "failback",
}

func (c Cause) String() string {
	if int(c) < len(causeNames) && causeNames[c] != "" {
		return causeNames[c]
	}
	return "unknown"
}

// Outcome says how a lease was settled.
type Outcome uint8

// The outcomes of an EffSettled, and which of its fields they use.
const (
	// OutcomeReleased: the shard was released.
	OutcomeReleased Outcome = iota + 1
	// OutcomeTransferred: the shard was transferred to the session in Owner, which is
	// this process's own where the shard was wanted here again.
	OutcomeTransferred
	// OutcomeUnknown: the record is Owner, of a later lease, and no reply says what
	// became of the shard before that.
	OutcomeUnknown
	// OutcomeRefused: the store refused the transfer, because of Err. The machine tries
	// again, but nobody waits for that.
	OutcomeRefused
	// OutcomeLost: the lease was revoked before its handler returned, or the session
	// ended before the shard was given back, because of Cause.
	OutcomeLost
)

// Event says what an EffEvent reports.
type Event uint8

// The events.
const (
	EventJoined      Event = iota + 1 // Session joined
	EventJoinFailed                   // Err; tried again after a back-off
	EventBeatFailed                   // Err
	EventLapsed                       // trust ended; the session may still exist. Err says why, if that is known
	EventRegained                     // trust is back; shards get new tokens
	EventSessionLost                  // Session is gone
	EventPeerJoined                   // Peer
	EventPeerUpdated                  // Peer tells something else about itself
	EventPeerGone                     // Peer left or was evicted by somebody
	EventPeerSilent                   // Peer was silent for its TTL
	EventPeerDead                     // Peer's process has ended, as its lock is held here (C14)
	EventPeerEvicted                  // this process evicted Peer
	EventCallFailed                   // a claim, transfer, release, eviction or update: Err
	EventHalted                       // Err; nothing is granted any more
	EventCloseFailed                  // Err; Session is left to be evicted
	EventIneligible                   // this process is not eligible: Err
	EventEligible                     // it is again
)

var eventNames = [...]string{
	EventJoined: "joined", EventJoinFailed: "join failed", EventBeatFailed: "heartbeat failed",
	EventLapsed: "trust lapsed", EventRegained: "trust regained", EventSessionLost: "session lost",
	EventPeerJoined: "peer joined", EventPeerUpdated: "peer updated", EventPeerGone: "peer gone", EventPeerDead: "peer dead",
	EventPeerSilent: "peer silent", EventPeerEvicted: "peer evicted", EventCallFailed: "call failed", EventHalted: "halted",
	EventCloseFailed: "close failed", EventIneligible: "not eligible", EventEligible: "eligible",
}

func (e Event) String() string {
	if int(e) < len(eventNames) && eventNames[e] != "" {
		return eventNames[e]
	}
	return "unknown"
}

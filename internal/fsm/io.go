package fsm

import (
	"time"

	"github.com/tenure-go/tenure/core/driver"
)

// An Instant is a duration since the process started. Its clock never steps, and counts the
// time for which the machine was suspended. Wall time cannot enter the machine.
type Instant time.Duration

// Never is later than every instant.
const Never = Instant(1<<63 - 1)

// Add returns the instant d later.
func (t Instant) Add(d time.Duration) Instant { return t + Instant(d) }

// Sub returns the time from u to t.
func (t Instant) Sub(u Instant) time.Duration { return time.Duration(t - u) }

// Config configures a machine. All durations must be positive unless zero has a documented
// meaning. core.Options sets the defaults and checks how they relate.
type Config struct {
	// Member is this process's description of itself until InUpdate. NewSession sets its Session
	// at each attempt to join.
	Member     driver.Member
	NewSession func() driver.SessionID // an id never used before; C3

	Interval     time.Duration // between two heartbeats, TTL/3
	Jitter       float64       // share of Interval subtracted at random, 0 to 0.5
	Margin       time.Duration // subtracted from the TTL to give the time of trust
	DrainBudget  time.Duration // for a handler to return before the lease is revoked
	AbandonAfter time.Duration // after a revocation, release even if the handler still runs; 0: never
	Resync       time.Duration // between two full reads of the namespace (C2, S13)
	CallTimeout  time.Duration // of every call except heartbeats
	RankDelay    time.Duration // between the candidates for one shard or eviction (C9)
	BackoffMin   time.Duration // first wait after a failed join or a lease given back
	BackoffMax   time.Duration // longest such wait; they double
	WatchAll     int           // with up to this many other members, watch all
	WatchFew     int           // with more, watch this many predecessors by session id
	Seed         uint64        // of jitter and back-off

	// HostLock is the identity of the lock that this process holds and that ends with the
	// process. It is empty if the process holds none (C14).
	HostLock string

	// Ineligible is the reason why this process is not eligible, until InEligible. It is empty
	// if the process is eligible (C15).
	Ineligible string
	// Failback is how long a member with a higher priority must live and be eligible before it
	// gets the shards that this process holds (C16). 0: never.
	Failback time.Duration
}

// HostLockKey is the key of MemberState.Meta under which the other members see HostLock.
const HostLockKey = "_lock"

// CallID names one outstanding call. Its reply has the same id. The machine ignores replies to
// calls that are no longer outstanding, including duplicates.
type CallID uint64

// InputKind is the kind of an Input.
type InputKind uint8

// The inputs, and which fields of Input they use.
const (
	// InWake: only time has passed. It is expected at or after Machine.WakeAt.
	InWake InputKind = iota
	// InWant: this process wants Shard, or all of Shards. It claims free shards no earlier than
	// after Wait.
	InWant
	// InUnwant: this process no longer wants Shard, or Shards. A held lease drains. The shard is
	// then handed to session To if that is not empty and lives, and otherwise released.
	InUnwant
	// InDrained: the handler that was started for the grant of Shard and Token has returned.
	InDrained
	// InStalled: the handler of Shard and Token makes no progress. The lease is revoked as if
	// its drain budget were spent.
	InStalled
	// InFenced: a commit under Shard and Token was refused. Owner is the record that refused
	// it, or zero if that is unknown.
	InFenced
	// InObserved: View, a page of changes, was requested at instant SentAt.
	InObserved
	// InJoined to InClosed are replies to the effect with the same Call. Err is the call-level
	// error.
	InJoined
	InBeaten
	InAcquired    // Results, one per claim
	InTransferred // Results, one per hand-over
	InReleased
	InEvicted // Evictions, one per suspect
	InUpdated
	InRead
	InClosed
	// InLeave: this process permanently gives up its session. All leases still held are
	// revoked. If no handler runs, the record is removed. Otherwise, it is left to be evicted.
	InLeave
	// InStoreChanged: a call that the machine did not make returned Err, which matches
	// driver.ErrStoreChanged (I1).
	InStoreChanged
	// InPrefer: for each of Shards, wanted here or not, Heirs names the sessions that claim it
	// first when it is free (C9). This is only advice. An heir that does not live, or does not
	// act, is passed over.
	InPrefer
	// InUpdate: this process publishes State from now on. The machine numbers it.
	InUpdate
	// InEligible: from now on this process is not eligible, because of Reason. If Reason is
	// empty, it is eligible (C15).
	InEligible
)

// Heirs are the sessions that claim a shard before all others, in this order. Empty sessions, and
// those that do not live, are passed over.
type Heirs [2]driver.SessionID

// Input is one thing that happened. Its Kind determines which fields are used.
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

// EffectKind is the kind of an Effect.
type EffectKind uint8

// The effects, and which fields of Effect they use.
const (
	// EffJoin to EffClose request one call each, in the name of Session, with Timeout. The runner
	// answers each exactly once, and judges no reply.
	EffJoin EffectKind = iota + 1 // Member
	EffBeat
	EffAcquire  // Claims
	EffTransfer // Transfers
	EffRelease  // Fences
	EffEvict    // Suspects
	EffUpdate   // State
	// EffRead requests one small linearizable read of anything. Only whether it is answered
	// matters (C6).
	EffRead
	// EffClose requests the closing of Session.
	EffClose
	// EffResync requests another full read of the namespace. The runner ends the Observe call
	// in progress and starts one with an empty cursor. If the call in progress has an empty
	// cursor, it continues, and another follows.
	EffResync
	// EffGrant: Fence is granted until Until. Head is the shard's head if HeadKnown.
	EffGrant
	// EffExtend: all leases of Session are trusted until Until.
	EffExtend
	// EffRevoke: Fence may no longer be used, because of Cause.
	EffRevoke
	// EffSettled: the lease of Fence is over, with Outcome. It comes exactly once for each
	// EffGrant: after the EffRevoke, after the handler was joined, and before the next EffGrant
	// of the shard. It is the answer to callers that wait for the lease, whether a reply, a view
	// or the end of the session decided it.
	EffSettled
	// EffYield: the runner should ask the handler of Fence to stop, because of Cause. The shard
	// goes to another member, although this process still wants it.
	EffYield
	// EffEvent: an event for operators: Event, Peer, Err, Cause.
	EffEvent
)

// Effect is one thing that the runner must do. Its slices belong to the receiver.
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

// Cause is the reason why a lease ended.
type Cause uint8

// The causes of a Revoke.
const (
	CauseReleased     Cause = iota + 1 // its handler was asked to stop, and returned
	CauseReturned                      // its handler returned while the shard was wanted
	CauseLapsed                        // no heartbeat succeeded in time: trust ended
	CauseFenced                        // the store refused a write under it
	CausePreempted                     // the record names another lease
	CauseSessionLost                   // the session was evicted or superseded
	CauseDrainBudget                   // its handler did not return in time
	CauseStalled                       // its handler made no progress
	CauseLeft                          // the process left before its handler returned
	CauseStoreChanged                  // the store was replaced
	CauseIneligible                    // its handler returned, and an eligible member gets the shard
	CauseFailback                      // its handler returned, and a member with a higher priority gets the shard
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

// Outcome is the way in which a lease was settled.
type Outcome uint8

// The outcomes of an EffSettled, and which of its fields they use.
const (
	// OutcomeReleased: the shard was released.
	OutcomeReleased Outcome = iota + 1
	// OutcomeTransferred: the shard was transferred to the session in Owner. If the shard was
	// wanted here again, this is the process's own session.
	OutcomeTransferred
	// OutcomeUnknown: the record is Owner, of a later lease. No reply shows how the shard left
	// this lease.
	OutcomeUnknown
	// OutcomeRefused: the store refused the transfer, because of Err. The machine tries again,
	// and no caller waits for that.
	OutcomeRefused
	// OutcomeLost: the lease was revoked before its handler returned, or the session
	// ended before the shard was given back, because of Cause.
	OutcomeLost
)

// Event is the kind of an EffEvent.
type Event uint8

// The events.
const (
	EventJoined      Event = iota + 1 // Session joined
	EventJoinFailed                   // Err; tried again after a back-off
	EventBeatFailed                   // Err
	EventLapsed                       // trust ended; the session may still exist; Err is the reason, if known
	EventRegained                     // trust is back; shards get new tokens
	EventSessionLost                  // Session is gone
	EventPeerJoined                   // Peer
	EventPeerUpdated                  // Peer changed its state
	EventPeerGone                     // Peer left or was evicted by any member
	EventPeerSilent                   // Peer was silent for its TTL
	EventPeerDead                     // Peer's process has ended, as its lock is held here (C14)
	EventPeerEvicted                  // this process evicted Peer
	EventCallFailed                   // a claim, transfer, release, eviction or update: Err
	EventHalted                       // Err; nothing more is granted
	EventCloseFailed                  // Err; Session is left to be evicted
	EventIneligible                   // this process is not eligible: Err
	EventEligible                     // this process is eligible again
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

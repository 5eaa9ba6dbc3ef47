package fsm

import (
	"time"

	"github.com/tenure-go/tenure/core/driver"
)

// An Instant is a duration since the process started. The clock that measures Instants never jumps,
// and includes the time that the computer was suspended. The state machine never sees wall time.
type Instant time.Duration

// Never is later than every instant.
const Never = Instant(1<<63 - 1)

// Add returns the instant d after t.
func (t Instant) Add(d time.Duration) Instant { return t + Instant(d) }

// Sub returns the time from u to t.
func (t Instant) Sub(u Instant) time.Duration { return time.Duration(t - u) }

// Config configures a machine. Every duration must be positive, unless zero has a documented
// meaning. Package core sets the defaults and checks the durations against each other.
type Config struct {
	// Member is this process's initial description of itself, which InUpdate replaces. NewSession
	// sets Member.Session at each attempt to join.
	Member     driver.Member
	NewSession func() driver.SessionID // returns an id that was never used before (C3)

	Interval     time.Duration // the time between two heartbeats, TTL/3
	Jitter       float64       // the largest share of Interval that is randomly subtracted, 0 to 0.5
	Margin       time.Duration // the part of the TTL without trust
	DrainBudget  time.Duration // the time for a handler to return before the lease is revoked
	AbandonAfter time.Duration // time from a revocation to the release if the handler still runs; 0: never
	Resync       time.Duration // the time between two full reads of the namespace (C2, S13)
	CallTimeout  time.Duration // the time-out of every call except heartbeats
	RankDelay    time.Duration // the delay between two candidates for one shard or eviction (C9)
	BackoffMin   time.Duration // first wait after a failed join or a lease that was given up early
	BackoffMax   time.Duration // the longest such wait; the waits double
	WatchAll     int           // with up to this many other members, the machine watches all of them
	WatchFew     int           // with more members, it watches this many predecessors by session id
	Seed         uint64        // seed of jitter and back-off

	// HostLock is the identity of the lock that this process holds until it ends, or empty if the
	// process holds no lock (C14).
	HostLock string

	// Ineligible is the reason why this process is not eligible, until an InEligible replaces it.
	// The reason is empty if the process is eligible (C15).
	Ineligible string
	// Failback is how long a member with a higher priority must live and be eligible before it gets
	// the shards that this process holds (C16). If Failback is 0, a higher priority moves no
	// shards.
	Failback time.Duration
}

// HostLockKey is the key of MemberState.Meta under which the other members see HostLock.
const HostLockKey = "_lock"

// CallID identifies an outstanding call. The call's reply has the same id. The machine ignores
// duplicate replies and replies to calls that are no longer outstanding.
type CallID uint64

// InputKind identifies what an Input reports.
type InputKind uint8

// These are the inputs, and the fields of Input that they use.
const (
	// InWake: only time has passed. The machine expects InWake at or after Machine.WakeAt.
	InWake InputKind = iota
	// InWant: this process wants Shard, or all of Shards. This process claims no free shard before
	// Wait has passed.
	InWant
	// InUnwant: this process no longer wants Shard, or Shards. A held lease drains. If session To
	// is alive, the shard is then handed to To. If To is empty or not alive, the shard is released.
	InUnwant
	// InDrained: the handler of the lease with Shard and Token has returned.
	InDrained
	// InStalled: the handler of the lease with Shard and Token makes no progress. The machine
	// revokes the lease in the same way as after the drain budget.
	InStalled
	// InFenced: a commit under the lease with Shard and Token was refused. Owner is the record that
	// made the store refuse the commit, or zero if that record is unknown.
	InFenced
	// InObserved: View, a page of changes, was requested at SentAt.
	InObserved
	// InJoined to InClosed are replies to the effect with the same Call id. Err is the error of the
	// whole call.
	InJoined
	InBeaten
	InAcquired    // Results, one per claim
	InTransferred // Results, one per hand-over
	InReleased
	InEvicted // Evictions, one per suspect
	InUpdated
	InRead
	InClosed
	// InLeave: this process permanently gives up its session. All leases still held are revoked. If
	// no handler runs, the record is removed. Otherwise, the record stays until it is evicted.
	InLeave
	// InStoreChanged: a call that the machine did not make returned Err, which matches
	// driver.ErrStoreChanged (I1).
	InStoreChanged
	// InPrefer: for each of Shards, Heirs lists the sessions that claim the shard first when it is
	// free (C9). This process need not want the shards. Heirs are only advice, so the members pass
	// over an heir that is not alive or does not act.
	InPrefer
	// InUpdate: this process publishes State from now on. The machine gives the state a number.
	InUpdate
	// InEligible: from now on, this process is not eligible, because of Reason. If Reason is empty,
	// the process is eligible (C15).
	InEligible
)

// Heirs are the sessions that claim a shard before all others, in this order. Empty sessions and
// sessions that are not alive are passed over.
type Heirs [2]driver.SessionID

// Input describes one thing that happened. The Kind field determines which other fields are used.
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

// EffectKind identifies what an Effect requests.
type EffectKind uint8

// These are the effects, and the fields of Effect that they use.
const (
	// EffJoin to EffClose request one call each, on behalf of Session, with Timeout. The runner
	// answers each of these effects exactly once, and does not interpret replies.
	EffJoin EffectKind = iota + 1 // Member
	EffBeat
	EffAcquire  // Claims
	EffTransfer // Transfers
	EffRelease  // Fences
	EffEvict    // Suspects
	EffUpdate   // State
	// EffRead requests one small linearizable read of any item. The machine needs to know only
	// whether the read is answered (C6).
	EffRead
	// EffClose asks the runner to close Session.
	EffClose
	// EffResync requests another full read of the namespace. The runner ends the Observe call in
	// progress and starts another with an empty cursor. If the cursor of the call in progress is
	// already empty, that call continues, and another call follows.
	EffResync
	// EffGrant: Fence is granted until the time Until. With HeadKnown, Head is the shard's head.
	EffGrant
	// EffExtend: all leases of Session are trusted until the time Until.
	EffExtend
	// EffRevoke: Fence may no longer be used, because of Cause.
	EffRevoke
	// EffSettled: the lease of Fence has ended, and Outcome is how it ended. EffSettled follows
	// each EffGrant exactly once: after the EffRevoke, after the handler was joined, and before the
	// next EffGrant of the shard. EffSettled answers the callers that wait for the lease, whether a
	// reply, a view or the end of the session decided the outcome.
	EffSettled
	// EffYield: the runner should ask the handler of Fence to stop, because of Cause. The shard
	// goes to another member, although this process still wants it.
	EffYield
	// EffEvent reports an event to operators, with Event, Peer, Err and Cause.
	EffEvent
)

// Effect is one thing that the runner must do. The receiver owns the Effect's slices.
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

// These are the causes of an EffRevoke.
const (
	CauseReleased     Cause = iota + 1 // its handler was asked to stop, and returned
	CauseReturned                      // its handler returned while the shard was wanted
	CauseLapsed                        // trust ended before a heartbeat succeeded
	CauseFenced                        // the store refused a write under the lease
	CausePreempted                     // the record names another lease
	CauseSessionLost                   // the session was evicted or superseded
	CauseDrainBudget                   // its handler did not return within the drain budget
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

// Outcome is how a lease was settled.
type Outcome uint8

// These are the outcomes of an EffSettled, and the fields of Effect that they use.
const (
	// OutcomeReleased: the shard was released.
	OutcomeReleased Outcome = iota + 1
	// OutcomeTransferred: the shard was transferred to the session in Owner. If this process wanted
	// the shard again, Owner contains this process's session.
	OutcomeTransferred
	// OutcomeUnknown: the record is now Owner, which belongs to a later lease. How this lease ended
	// is unknown.
	OutcomeUnknown
	// OutcomeRefused: the store refused the transfer, because of Err. The machine tries to give up
	// the shard again, and no caller waits for the new attempt.
	OutcomeRefused
	// OutcomeLost: because of Cause, the lease was revoked before its handler returned, or the
	// session ended before the shard was given up.
	OutcomeLost
)

// Event identifies what an EffEvent reports.
type Event uint8

// These are the kinds of events.
const (
	EventJoined      Event = iota + 1 // Session joined
	EventJoinFailed                   // Err is the reason; the machine tries again after a back-off
	EventBeatFailed                   // Err is the reason
	EventLapsed                       // trust ended; the session may still exist; Err is the reason, if known
	EventRegained                     // the session is trusted again; shards get new tokens
	EventSessionLost                  // Session is gone
	EventPeerJoined                   // Peer joined
	EventPeerUpdated                  // Peer changed its state
	EventPeerGone                     // Peer left or was evicted by any member
	EventPeerSilent                   // Peer was silent for its TTL
	EventPeerDead                     // Peer's process has ended, because its lock is held here (C14)
	EventPeerEvicted                  // this process evicted Peer
	EventCallFailed                   // Err is the error of a claim, transfer, release, eviction or update
	EventHalted                       // Err is the reason; no further lease is granted
	EventCloseFailed                  // Err is the reason; Session stays until it is evicted
	EventIneligible                   // this process is not eligible; Err is the reason
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

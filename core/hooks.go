package core

import (
	"time"

	"github.com/tenure-go/tenure/core/fsm"
)

// Hooks are functions that are told what happens, for metrics and alarms. Each
// may be nil. They are called one at a time and in order, from a goroutine of
// their own and with no lock held, so that a slow hook delays no heartbeat; one
// that falls behind by more than 65,536 events loses the oldest of them and is
// told how many (OnDropped). A hook must return: Run waits for the hooks at its
// end, at most the drain budget.
type Hooks struct {
	// OnGrant: the lease was granted. Its handler starts next.
	OnGrant func(LeaseEvent)
	// OnRevoke: the lease may not be used any more; errors.Is tells why.
	OnRevoke func(*RevokedError)
	// OnHandlerStart: the handler was called.
	OnHandlerStart func(LeaseEvent)
	// OnHandlerReturn: the handler returned Err after it Ran for that time, and its
	// commits are settled. Exactly one for each OnHandlerStart, unless the
	// handler never returns.
	OnHandlerReturn func(LeaseEvent)
	// OnStuck: the lease is revoked, and its handler has not returned within the
	// drain budget, or stalled. The shard is not released until it does.
	OnStuck func(*RevokedError)
	// OnRefused: the store refused a write by its fence, since another session took over.
	// Current is zero where the store does not tell which.
	OnRefused func(*FencedError)
	// OnDamaged: a record of the store cannot be read (D1). Reported once for each
	// record, and at most once a minute if it becomes damaged in other ways; at most 64
	// records at a time, beyond which View.DamagedTotal counts on.
	OnDamaged func(*DamagedError)
	// OnSession: something happened to this process's own session.
	OnSession func(SessionEvent)
	// OnPeer: something happened to another member.
	OnPeer func(PeerEvent)
	// OnCall: a call to the backend ended. Observe is reported only when it fails,
	// because it waits.
	OnCall func(Call)
	// OnDropped: events were lost because hooks were too slow.
	OnDropped func(Dropped)
}

// LeaseEvent is something that happened to a lease of this process.
type LeaseEvent struct {
	Fence Fence
	Ran   time.Duration // its handler; in OnHandlerReturn
	Err   error         // that its handler returned; in OnHandlerReturn
}

// Dropped says how many events were lost.
type Dropped struct{ Events int }

// SessionEventKind says what happened to the own session.
type SessionEventKind string

// What happens to the own session.
const (
	SessionJoined     SessionEventKind = "joined"
	SessionJoinFailed SessionEventKind = "join failed"       // Err; tried again after a back-off
	SessionBeatFailed SessionEventKind = "heartbeat failed"  // Err
	SessionLapsed     SessionEventKind = "trust lapsed"      // Err: the last heartbeat's, or that none was answered
	SessionRegained   SessionEventKind = "trust regained"    // shards are kept, with new tokens
	SessionLost       SessionEventKind = "session lost"      // Err, a *SessionLostError, says by whom, if known; joins anew
	SessionHalted     SessionEventKind = "halted"            // Err matches ErrStoreChanged; nothing is granted
	SessionFailedOver SessionEventKind = "store failed over" // its history may have forked; every lease has a new token (I2)
	SessionStoreLost  SessionEventKind = "store lost writes" // Err is a *LostError: one shard's, found after a failover
	SessionCallFailed SessionEventKind = "call failed"       // Err of a claim, transfer, release, eviction or update
)

// SessionEvent is something that happened to this process's own session.
type SessionEvent struct {
	Kind    SessionEventKind
	Session SessionID
	Err     error
}

// PeerEventKind says what happened to another member.
type PeerEventKind string

// What happens to other members.
const (
	PeerJoined  PeerEventKind = "joined"
	PeerUpdated PeerEventKind = "updated" // it tells something else about itself: see Elector.Update
	PeerGone    PeerEventKind = "gone"    // left, or was evicted by somebody
	PeerSilent  PeerEventKind = "silent"  // for its TTL, as seen from here
	PeerEvicted PeerEventKind = "evicted" // by this process
)

// PeerEvent is something that happened to another member.
type PeerEvent struct {
	Kind PeerEventKind
	Peer Member
}

// The values of Call.Kind.
const (
	callJoin     = "join"
	callBeat     = "beat"
	callAcquire  = "acquire"
	callTransfer = "transfer"
	callRelease  = "release"
	callEvict    = "evict"
	callUpdate   = "update"
	callRead     = "read" // a small one, after a lapse: heartbeats wait for its answer
	callClose    = "close"
	callCommit   = "commit"
	callObserve  = "observe"
	callReadHead = "read head" // before a handler starts, or to settle a commit
)

// Call is a call to the backend that ended.
type Call struct {
	// Kind names the method: "join", "beat", "acquire", "transfer", "release", "evict",
	// "update", "close", "commit" or "observe"; "read head", before a handler starts or to
	// settle a commit; or "read", after a lapse, whose answer heartbeats wait for.
	Kind  string
	Items int // claims, handovers, fences, suspects or operations; else 0
	Took  time.Duration
	Err   error // of the whole call
}

func sessionEvent(e fsm.Event) (SessionEventKind, bool) {
	switch e {
	case fsm.EventJoined:
		return SessionJoined, true
	case fsm.EventJoinFailed:
		return SessionJoinFailed, true
	case fsm.EventBeatFailed:
		return SessionBeatFailed, true
	case fsm.EventLapsed:
		return SessionLapsed, true
	case fsm.EventRegained:
		return SessionRegained, true
	case fsm.EventSessionLost:
		return SessionLost, true
	case fsm.EventHalted:
		return SessionHalted, true
	case fsm.EventCallFailed:
		return SessionCallFailed, true
	}
	return "", false
}

func peerEvent(e fsm.Event) (PeerEventKind, bool) {
	switch e {
	case fsm.EventPeerJoined:
		return PeerJoined, true
	case fsm.EventPeerUpdated:
		return PeerUpdated, true
	case fsm.EventPeerGone:
		return PeerGone, true
	case fsm.EventPeerSilent:
		return PeerSilent, true
	case fsm.EventPeerEvicted:
		return PeerEvicted, true
	}
	return "", false
}

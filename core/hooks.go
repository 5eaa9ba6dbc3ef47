package core

import (
	"cmp"
	"context"
	"time"

	"github.com/tenure-go/tenure/internal/fsm"
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
	// OnStop: the handler was asked to stop. Err is the cause of its context.
	OnStop func(LeaseEvent)
	// OnHandlerReturn: the handler returned Err after it Ran for that time, and its
	// commits are settled. Exactly one for each OnHandlerStart, unless the
	// handler never returns.
	OnHandlerReturn func(LeaseEvent)
	// OnSettled: the lease is over in the store, too, as far as that is known. Exactly one
	// for each OnGrant, unless the handler never returns or Run ends first.
	OnSettled func(Settled)
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
	// CallStart, unlike the others, is called by the goroutine that makes a call to the
	// backend, before it: several at a time, and the call waits for it. What it returns is
	// the context of the call, which must be ctx or derived from it, and a function, or
	// nil, that is called in the same goroutine when the call has ended. Observe is left
	// out. For traces: ctx has the values of the context that the caller gave to the
	// method of Lease, or to Run for calls that the member makes by itself.
	CallStart func(ctx context.Context, c Started) (context.Context, func(error))
	// OnDropped: events were lost because hooks were too slow.
	OnDropped func(Dropped)
}

// LeaseEvent is something that happened to a lease of this process.
type LeaseEvent struct {
	Fence Fence
	Ran   time.Duration // its handler; in OnHandlerReturn
	Err   error         // that its handler returned, or why it was asked to stop
	Asked bool          // Err only says that the handler was asked to stop; in OnHandlerReturn
	// Former is the session that the shard was taken over from, in OnGrant; empty where
	// nobody had it, or its owner gave it.
	Former SessionID
}

// LeaseOutcome says how a lease ended in the store.
type LeaseOutcome string

// How leases end in the store.
const (
	LeaseReleased    LeaseOutcome = "released"    // the shard is free
	LeaseTransferred LeaseOutcome = "transferred" // to session To
	LeaseLost        LeaseOutcome = "lost"        // it was revoked before
	LeaseRefused     LeaseOutcome = "refused"     // the store refused the transfer
	LeaseUnknown     LeaseOutcome = "unknown"     // the reply was lost, and another lease followed
)

// Settled is a lease that is over.
type Settled struct {
	Fence   Fence
	Outcome LeaseOutcome
	To      SessionID     // the successor, if Transferred
	Took    time.Duration // since its handler was asked to stop; 0 if it was not
}

func settledAs(r *run, end *fsm.Effect, now fsm.Instant) Settled {
	s := Settled{Fence: end.Fence, Outcome: leaseOutcomes[end.Outcome]}
	if end.Outcome == fsm.OutcomeTransferred {
		s.To = end.Owner.Session
	}
	if r.asked != 0 {
		s.Took = now.Sub(r.asked)
	}
	return s
}

var leaseOutcomes = [...]LeaseOutcome{
	fsm.OutcomeReleased: LeaseReleased, fsm.OutcomeTransferred: LeaseTransferred, fsm.OutcomeUnknown: LeaseUnknown,
	fsm.OutcomeRefused: LeaseRefused, fsm.OutcomeLost: LeaseLost,
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
	SessionLapsed     SessionEventKind = "trust lapsed"      // Err: the last heartbeat's, that none was answered, or that this process did not run
	SessionRegained   SessionEventKind = "trust regained"    // shards are kept, with new tokens
	SessionLost       SessionEventKind = "session lost"      // Err, a *SessionLostError, says by whom, if known; joins anew
	SessionHalted     SessionEventKind = "halted"            // Err matches ErrStoreChanged; nothing is granted
	SessionFailedOver SessionEventKind = "store failed over" // its history may have forked; every lease has a new token (I2); Err says what the opening found, if it did
	SessionStoreLost  SessionEventKind = "store lost writes" // Err is a *LostError: one shard's, found after a failover
	SessionCallFailed SessionEventKind = "call failed"       // Err of a claim, transfer, release, eviction or update
	SessionIneligible SessionEventKind = "not eligible"      // Err says why: see Options.Eligible
	SessionEligible   SessionEventKind = "eligible"          // for the first time, or again
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
	PeerDead    PeerEventKind = "dead"    // its process, of this host and node label, has ended (C14)
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
	callGet      = "get"
	callList     = "list"
	callReadLog  = "read log"
)

// Started is a call to the backend that begins: see Hooks.CallStart.
type Started struct {
	Kind  string // as Call.Kind
	Items int
	Shard string // that it is about; empty if it is about none or several
	// Others are the contexts of the other callers whose commits this call carries.
	Others []context.Context
}

// Call is a call to the backend that ended.
type Call struct {
	// Kind names the method: "join", "beat", "acquire", "transfer", "release", "evict",
	// "update", "close", "commit" or "observe"; "get", "list" or "read log" of a Lease;
	// "read head", before a handler starts or to settle a commit; or "read", after a lapse,
	// whose answer heartbeats wait for.
	Kind  string
	Items int // claims, hand-overs, fences, suspects or operations; else 0
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
	case fsm.EventIneligible:
		return SessionIneligible, true
	case fsm.EventEligible:
		return SessionEligible, true
	default:
		return "", false
	}
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
	case fsm.EventPeerDead:
		return PeerDead, true
	case fsm.EventPeerEvicted:
		return PeerEvicted, true
	default:
		return "", false
	}
}

// JoinHooks returns hooks that call all of those given, in their order: such as an
// application's beside those of package tenureprom.
func JoinHooks(all ...Hooks) Hooks {
	return Hooks{
		OnGrant:         joined(all, func(h *Hooks) func(LeaseEvent) { return h.OnGrant }),
		OnRevoke:        joined(all, func(h *Hooks) func(*RevokedError) { return h.OnRevoke }),
		OnHandlerStart:  joined(all, func(h *Hooks) func(LeaseEvent) { return h.OnHandlerStart }),
		OnStop:          joined(all, func(h *Hooks) func(LeaseEvent) { return h.OnStop }),
		OnHandlerReturn: joined(all, func(h *Hooks) func(LeaseEvent) { return h.OnHandlerReturn }),
		OnSettled:       joined(all, func(h *Hooks) func(Settled) { return h.OnSettled }),
		OnStuck:         joined(all, func(h *Hooks) func(*RevokedError) { return h.OnStuck }),
		OnRefused:       joined(all, func(h *Hooks) func(*FencedError) { return h.OnRefused }),
		OnDamaged:       joined(all, func(h *Hooks) func(*DamagedError) { return h.OnDamaged }),
		OnSession:       joined(all, func(h *Hooks) func(SessionEvent) { return h.OnSession }),
		OnPeer:          joined(all, func(h *Hooks) func(PeerEvent) { return h.OnPeer }),
		OnCall:          joined(all, func(h *Hooks) func(Call) { return h.OnCall }),
		CallStart:       joinedStarts(all),
		OnDropped:       joined(all, func(h *Hooks) func(Dropped) { return h.OnDropped }),
	}
}

func joined[E any](all []Hooks, of func(*Hooks) func(E)) func(E) {
	var fs []func(E)
	for i := range all {
		if f := of(&all[i]); f != nil {
			fs = append(fs, f)
		}
	}
	switch len(fs) {
	case 0:
		return nil
	case 1:
		return fs[0]
	}
	return func(e E) {
		for _, f := range fs {
			f(e)
		}
	}
}

func joinedStarts(all []Hooks) func(context.Context, Started) (context.Context, func(error)) {
	var fs []func(context.Context, Started) (context.Context, func(error))
	for i := range all {
		if f := all[i].CallStart; f != nil {
			fs = append(fs, f)
		}
	}
	switch len(fs) {
	case 0:
		return nil
	case 1:
		return fs[0]
	}
	return func(ctx context.Context, c Started) (context.Context, func(error)) {
		ends := make([]func(error), 0, len(fs))
		for _, f := range fs {
			var end func(error)
			if ctx, end = f(ctx, c); end != nil {
				ends = append(ends, end)
			}
		}
		return ctx, func(err error) {
			for i := len(ends) - 1; i >= 0; i-- { // the inner ones first
				ends[i](err)
			}
		}
	}
}

// span is a call to the backend that is under way.
type span struct {
	n     *notifier
	kind  string
	items int
	sent  time.Time
	end   func(error)
}

// startCall begins a call to the backend, about shard s unless that is empty. others are
// further callers. Without CallStart it allocates nothing.
func (n *notifier) startCall(
	ctx context.Context, kind string, items int, s ShardID, others []context.Context,
) (context.Context, span) {
	sp := span{n: n, kind: kind, items: items}
	if f := n.h.CallStart; f != nil {
		ctx, sp.end = f(ctx, Started{Kind: kind, Items: items, Shard: string(s), Others: others})
	}
	sp.sent = time.Now()
	return ctx, sp
}

// done ends it, and returns how long the call took. Items is the error of one if all failed.
func (s *span) done(err error, items ...error) time.Duration {
	took := time.Since(s.sent)
	if s.end != nil {
		s.end(err)
	}
	s.n.call(s.kind, s.items, took, err)
	s.n.heed(s.kind, cmp.Or(err, cmp.Or(items...)))
	return took
}

// carried is a context that ends as one does and has the values of another.
type carried struct {
	context.Context
	values context.Context
}

func (c carried) Value(key any) any {
	if v := c.values.Value(key); v != nil {
		return v
	}
	return c.Context.Value(key)
}

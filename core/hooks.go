package core

import (
	"cmp"
	"context"
	"time"

	"github.com/tenure-go/tenure/internal/fsm"
	"github.com/tenure-go/tenure/internal/goexit"
)

// Hooks are functions that the Elector calls when something happens, for metrics and alarms. Each
// may be nil. Except for CallStart, the Elector calls them in order, one at a time, from their own
// goroutine. It holds no lock, so that a slow hook delays no heartbeat. If the hooks fall behind by
// more than 65,536 events, the Elector drops the oldest events and passes their number to
// OnDropped. A hook must return, because Run waits for the hooks before it ends, at most for the
// drain budget. A hook that ends its goroutine (runtime.Goexit) counts as returned, but the log
// line about its event is lost.
type Hooks struct {
	// OnGrant runs when a lease has been granted, before its handler starts.
	OnGrant func(LeaseEvent)
	// OnRevoke runs when a lease may no longer be used. Use errors.Is to find the reason.
	OnRevoke func(*RevokedError)
	// OnHandlerStart runs when a handler starts.
	OnHandlerStart func(LeaseEvent)
	// OnStop runs when a handler has been asked to stop. Err is the cause of its context.
	OnStop func(LeaseEvent)
	// OnHandlerReturn runs when a handler has returned Err and its commits are settled. It runs
	// once for each OnHandlerStart, unless the handler never returns.
	OnHandlerReturn func(LeaseEvent)
	// OnSettled runs when, as far as this process knows, the lease has also ended in the store. It
	// runs once for each OnGrant, unless the handler never returns or Run ends first.
	OnSettled func(Settled)
	// OnStuck runs when a lease is revoked and its handler stalled or did not return within the
	// drain budget. The shard is not released until the handler returns.
	OnStuck func(*RevokedError)
	// OnRefused runs when the store has refused a write because of its fence: another session owns
	// the shard. Current is zero if the store does not report which session.
	OnRefused func(*FencedError)
	// OnDamaged runs once for each record in the store that cannot be read (D1). If the record
	// becomes damaged in other ways, OnDamaged runs at most once a minute. It names at most 64
	// records at a time; View.DamagedTotal counts all.
	OnDamaged func(*DamagedError)
	// OnSession reports an event of this process's session.
	OnSession func(SessionEvent)
	// OnPeer reports an event of another member.
	OnPeer func(PeerEvent)
	// OnCall runs when a call to the backend has ended. It reports Observe only if the call fails,
	// because Observe blocks until something changes.
	OnCall func(Call)
	// CallStart runs before each call to the backend except Observe, for traces. Unlike the other
	// hooks, it may run several times concurrently, and the call waits for it. It returns the
	// call's context, which must be ctx or derived from it, and nil or a function to run when the
	// call has ended. Neither function runs in the goroutine of the call. The argument ctx carries
	// the values of the context given to the method of Lease. For the member's own calls, it
	// carries those of Run's context.
	CallStart func(ctx context.Context, c Started) (context.Context, func(error))
	// OnDropped runs when events have been dropped because hooks were too slow.
	OnDropped func(Dropped)
}

// LeaseEvent is an event of one of this process's leases.
type LeaseEvent struct {
	Fence Fence
	Ran   time.Duration // how long its handler ran; in OnHandlerReturn
	Err   error         // what its handler returned, or why it was asked to stop
	Asked bool          // Err only says that the handler was asked to stop; in OnHandlerReturn
	// Former is the session from which the shard was taken over, in OnGrant. It is empty if no
	// session owned the shard, or if the owner handed it over.
	Former SessionID
}

// LeaseOutcome says how a lease ended in the store.
type LeaseOutcome string

// The ways in which a lease ends in the store.
const (
	LeaseReleased    LeaseOutcome = "released"    // the shard is free
	LeaseTransferred LeaseOutcome = "transferred" // to session To
	LeaseLost        LeaseOutcome = "lost"        // it was revoked first
	LeaseRefused     LeaseOutcome = "refused"     // the store refused the transfer
	LeaseUnknown     LeaseOutcome = "unknown"     // the reply was lost, and another lease followed
)

// Settled describes a lease that is over.
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

// Dropped reports how many events were lost.
type Dropped struct{ Events int }

// SessionEventKind is the kind of a SessionEvent.
type SessionEventKind string

// The kinds of session events.
const (
	SessionJoined     SessionEventKind = "joined"
	SessionJoinFailed SessionEventKind = "join failed"       // Err; tried again after a back-off
	SessionBeatFailed SessionEventKind = "heartbeat failed"  // Err
	SessionLapsed     SessionEventKind = "trust lapsed"      // Err says why: the last heartbeat's error, no answer, or this process did not run
	SessionRegained   SessionEventKind = "trust regained"    // shards are kept, with new tokens
	SessionLost       SessionEventKind = "session lost"      // Err, a *SessionLostError, names the session that ended it, if known; joins again
	SessionHalted     SessionEventKind = "halted"            // Err matches ErrStoreChanged; nothing is granted
	SessionFailedOver SessionEventKind = "store failed over" // its history may have forked; every lease gets a new token (I2); Err is the finding of the opening, if any
	SessionStoreLost  SessionEventKind = "store lost writes" // Err is a *LostError about one shard, found after a failover
	SessionCallFailed SessionEventKind = "call failed"       // Err of a claim, transfer, release, eviction or update
	SessionIneligible SessionEventKind = "not eligible"      // Err says why: see Options.Eligible
	SessionEligible   SessionEventKind = "eligible"          // for the first time, or again
)

// SessionEvent is an event of this process's own session.
type SessionEvent struct {
	Kind    SessionEventKind
	Session SessionID
	Err     error
}

// PeerEventKind is the kind of a PeerEvent.
type PeerEventKind string

// The kinds of events of other members.
const (
	PeerJoined  PeerEventKind = "joined"
	PeerUpdated PeerEventKind = "updated" // it changed its state: see Elector.Update
	PeerGone    PeerEventKind = "gone"    // it left, or another member evicted it
	PeerSilent  PeerEventKind = "silent"  // for its TTL, as seen from here
	PeerDead    PeerEventKind = "dead"    // its process, of this host and node label, has ended (C14)
	PeerEvicted PeerEventKind = "evicted" // by this process
)

// PeerEvent is an event of another member.
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
	callRead     = "read" // a small read after a lapse; heartbeats wait for its answer
	callClose    = "close"
	callCommit   = "commit"
	callObserve  = "observe"
	callReadHead = "read head" // before a handler starts, or to settle a commit
	callGet      = "get"
	callList     = "list"
	callReadLog  = "read log"
)

// Started describes a call to the backend that is about to begin. See Hooks.CallStart.
type Started struct {
	Kind  string // as Call.Kind
	Items int
	Shard string // empty unless the call concerns exactly one shard
	// Others are the contexts of the other callers whose commits this call sends.
	Others []context.Context
}

// Call describes a call to the backend that has ended.
type Call struct {
	// Kind names the method: "join", "beat", "acquire", "transfer", "release", "evict", "update",
	// "close", "commit" or "observe"; or, for a Lease, "get", "list" or "read log".
	//
	// "read head" is a read before a handler starts or to settle a commit. "read" is a small read
	// after a lapse; heartbeats wait for its answer.
	Kind  string
	Items int // claims, hand-overs, fences, suspects or operations; otherwise 0
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

// JoinHooks returns hooks that call the given hooks in order, for example an application's and then
// package tenureprom's.
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

// span is a call to the backend in progress.
type span struct {
	n     *notifier
	kind  string
	items int
	sent  time.Time
	end   func(error)
}

// startCall begins a call to the backend, which concerns shard s unless s is empty. others are the
// contexts of further callers. Without CallStart, it allocates nothing.
func (n *notifier) startCall(
	ctx context.Context, kind string, items int, s ShardID, others []context.Context,
) (context.Context, span) {
	sp := span{n: n, kind: kind, items: items}
	if f := n.h.CallStart; f != nil {
		ctx, sp.end = started(ctx, f, Started{Kind: kind, Items: items, Shard: string(s), Others: others})
	}
	sp.sent = time.Now()
	return ctx, sp
}

// started calls CallStart. If CallStart ends its goroutine, started returns ctx and no end
// function.
func started(ctx context.Context, f func(context.Context, Started) (context.Context, func(error)), c Started) (of context.Context, end func(error)) {
	of = ctx
	_ = goexit.Call(func() error { of, end = f(ctx, c); return nil })
	return of, end
}

// done ends the call and returns how long it took. If all items failed, items contains the error of
// one of them.
func (s *span) done(err error, items ...error) time.Duration {
	took := time.Since(s.sent)
	if s.end != nil {
		goexit.Told(s.end)(err)
	}
	s.n.call(s.kind, s.items, took, err)
	s.n.heed(s.kind, cmp.Or(err, cmp.Or(items...)))
	return took
}

// carried is a context that ends when one context ends and has the values of another.
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

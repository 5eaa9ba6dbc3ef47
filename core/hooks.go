package core

import (
	"cmp"
	"context"
	"time"

	"github.com/tenure-go/tenure/internal/fsm"
	"github.com/tenure-go/tenure/internal/goexit"
)

// Hooks are functions that the Elector calls when something happens, for metrics and alarms. Any
// hook may be nil. The Elector calls all hooks except CallStart in order, one at a time, from a
// separate goroutine. The Elector holds no lock during these calls, so a slow hook does not delay
// heartbeats. If the hooks fall behind by more than 65,536 events and calls, the Elector drops the
// oldest events and calls, and reports EventsDropped. Every hook must return. Before Run ends, it
// waits up to one drain budget for the hooks to return. If a hook ends its goroutine
// (runtime.Goexit), the hook counts as returned, but the log line about its event is lost.
type Hooks struct {
	// OnEvent runs for each event.
	OnEvent func(Event)
	// OnCall runs when a call to the backend has ended. An Observe is reported only if it fails,
	// because Observe blocks until something changes.
	OnCall func(Call)
	// CallStart runs before each call to the backend except Observe. CallStart is meant for traces.
	// Unlike the other hooks, CallStart may run several times concurrently, and the call to the
	// backend waits for it. CallStart returns the call's context, which must be ctx or derived from
	// ctx, and a function to run when the call has ended, or nil. CallStart and that function run
	// outside the call's goroutine. If a method of Lease makes the call, ctx carries the values of
	// the context that the method received. If the member itself makes the call, ctx carries the
	// values of Run's context.
	CallStart func(ctx context.Context, c Call) (context.Context, func(error))
}

// Event describes something that happened. The Kind field determines which other fields are set.
type Event struct {
	At      time.Time
	Kind    EventKind
	Fence   Fence     // the lease's fence
	Session SessionID // this process's session, except in LeaseGranted and LeaseTransferred
	Peer    Member
	Err     error
	Took    time.Duration
	Dropped int // set in EventsDropped
}

// EventKind identifies what an Event reports.
type EventKind string

// These events concern this process's leases. The Fence field is the lease's fence.
const (
	// LeaseGranted means that this process has a new lease on a shard. LeaseGranted precedes
	// HandlerStarted. Session is the session from which this process took over the shard. Session
	// is empty if no session owned the shard, or if the owner handed the shard over.
	LeaseGranted EventKind = "granted"
	// LeaseEnded means that a lease may no longer be used. Err is a *RevokedError. Use errors.Is to
	// find the reason.
	LeaseEnded EventKind = "revoked"
	// HandlerStarted means that a handler starts.
	HandlerStarted EventKind = "started"
	// HandlerStopping means that a handler has been asked to stop. Err is the cause of the
	// handler's context.
	HandlerStopping EventKind = "asked to stop"
	// HandlerReturned means that a handler has returned Err and the handler's commits are settled.
	// Err is nil if the handler returned because it was asked to stop. Took is how long the handler
	// ran. If the handler returns, one HandlerReturned follows its HandlerStarted.
	HandlerReturned EventKind = "returned"
	// HandlerStuck means that the lease is revoked, and that its handler has stalled or has not
	// returned within the drain budget. Err is a *RevokedError. The shard is not released until its
	// handler returns.
	HandlerStuck EventKind = "stuck"
	// WriteRefused means that the store has refused a write because another session owns the shard.
	// Err is a *FencedError. The error's Current is zero if the store does not report the owner.
	WriteRefused EventKind = "write refused"
)

// These events mean that, as far as this process knows, a lease has also ended in the store. One of
// these events follows each LeaseGranted, unless the handler never returns or Run ends first. The
// Fence field is the lease's fence. Took is the time since the handler was asked to stop, or 0 if
// it was not asked.
const (
	LeaseReleased    EventKind = "released"    // the shard is free
	LeaseTransferred EventKind = "transferred" // the shard was transferred to Session
	LeaseLost        EventKind = "lost"        // the lease was revoked first
	LeaseRefused     EventKind = "refused"     // the store refused the transfer
	LeaseUnknown     EventKind = "unknown"     // the reply was lost, and another lease followed
)

// These events concern this process's session, which the Session field contains if it exists.
const (
	SessionJoined     EventKind = "joined"
	SessionJoinFailed EventKind = "join failed"       // Err is the reason; the member tries again after a back-off
	SessionBeatFailed EventKind = "heartbeat failed"  // Err is the reason
	SessionLapsed     EventKind = "trust lapsed"      // Err is the reason: the last heartbeat's error, no answer, or this process did not run
	SessionRegained   EventKind = "trust regained"    // the member keeps its shards, with new tokens
	SessionLost       EventKind = "session lost"      // Err is a *SessionLostError, which names the session that ended it, if known; the member joins again
	SessionHalted     EventKind = "halted"            // Err matches ErrStoreChanged; no lease is granted
	SessionFailedOver EventKind = "store failed over" // the store's history may have forked; every lease gets a new token (I2); Err is what Open found
	SessionStoreLost  EventKind = "store lost writes" // Err is a *LostError about one shard, found after a failover
	SessionCallFailed EventKind = "call failed"       // Err is the error of a claim, transfer, release, eviction or update
	SessionIneligible EventKind = "not eligible"      // Err is the reason: see Options.Eligible
	SessionEligible   EventKind = "eligible"          // the member is eligible, for the first time or again
)

// These events concern another member, described by the Peer field. Metrics and the board omit the
// prefix "peer".
const (
	PeerJoined  EventKind = "peer joined"
	PeerUpdated EventKind = "peer updated" // the peer changed its state: see Elector.Update
	PeerGone    EventKind = "peer gone"    // the peer left, or another member evicted it
	PeerSilent  EventKind = "peer silent"  // the peer was silent for its TTL, as seen from here
	PeerDead    EventKind = "peer dead"    // the peer's process, on this host and under this node label, has ended (C14)
	PeerEvicted EventKind = "peer evicted" // this process evicted the peer
)

// These are the other kinds of events.
const (
	// RecordDamaged reports once that a record in the store cannot be read (D1). Err is a
	// *DamagedError. If the damage changes, the event is repeated at most once a minute. At most 64
	// damaged records are reported at a time. View.DamagedTotal counts all damaged records.
	RecordDamaged EventKind = "record damaged"
	// EventsDropped means that hooks were too slow. Dropped is the number of lost events and calls.
	EventsDropped EventKind = "events dropped"
)

var eventKinds = [...]EventKind{
	fsm.EventJoined: SessionJoined, fsm.EventJoinFailed: SessionJoinFailed, fsm.EventBeatFailed: SessionBeatFailed,
	fsm.EventLapsed: SessionLapsed, fsm.EventRegained: SessionRegained, fsm.EventSessionLost: SessionLost,
	fsm.EventHalted: SessionHalted, fsm.EventCallFailed: SessionCallFailed, fsm.EventIneligible: SessionIneligible,
	fsm.EventEligible: SessionEligible, fsm.EventPeerJoined: PeerJoined, fsm.EventPeerUpdated: PeerUpdated,
	fsm.EventPeerGone: PeerGone, fsm.EventPeerSilent: PeerSilent, fsm.EventPeerDead: PeerDead, fsm.EventPeerEvicted: PeerEvicted,
}

var leaseOutcomes = [...]EventKind{
	fsm.OutcomeReleased: LeaseReleased, fsm.OutcomeTransferred: LeaseTransferred, fsm.OutcomeUnknown: LeaseUnknown,
	fsm.OutcomeRefused: LeaseRefused, fsm.OutcomeLost: LeaseLost,
}

func settledAs(r *run, end *fsm.Effect, now fsm.Instant) Event {
	ev := Event{Kind: leaseOutcomes[end.Outcome], Fence: end.Fence}
	if end.Outcome == fsm.OutcomeTransferred {
		ev.Session = end.Owner.Session
	}
	if r.asked != 0 {
		ev.Took = now.Sub(r.asked)
	}
	return ev
}

// These are the values of Call.Kind.
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
	callReadHead = "read head" // a read before a handler starts, or to settle a commit
	callGet      = "get"
	callList     = "list"
	callReadLog  = "read log"
)

// Call describes a call to the backend that has ended or, for Hooks.CallStart, is about to begin.
type Call struct {
	// Kind is the method: "join", "beat", "acquire", "transfer", "release", "evict", "update",
	// "close", "commit" or "observe". For a method of a Lease, Kind is "get", "list" or "read log".
	//
	// The kind "read head" is a read before a handler starts or to settle a commit. The kind "read"
	// is a small read after a lapse, for whose answer heartbeats wait.
	Kind  string
	Items int    // number of claims, hand-overs, fences, suspects or operations; otherwise 0
	Shard string // empty unless the call concerns exactly one shard
	// Others contains the contexts of the other callers whose commits this call sends. Only
	// CallStart receives these contexts.
	Others []context.Context
	Took   time.Duration // 0 for CallStart
	Err    error         // the error of the whole call
}

// JoinHooks returns hooks that call the given hooks in order. An application can use JoinHooks to
// add the hooks of package tenureprom to its own hooks.
func JoinHooks(all ...Hooks) Hooks {
	return Hooks{
		OnEvent:   joined(all, func(h *Hooks) func(Event) { return h.OnEvent }),
		OnCall:    joined(all, func(h *Hooks) func(Call) { return h.OnCall }),
		CallStart: joinedStarts(all),
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

func joinedStarts(all []Hooks) func(context.Context, Call) (context.Context, func(error)) {
	var fs []func(context.Context, Call) (context.Context, func(error))
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
	return func(ctx context.Context, c Call) (context.Context, func(error)) {
		ends := make([]func(error), 0, len(fs))
		for _, f := range fs {
			var end func(error)
			if ctx, end = f(ctx, c); end != nil {
				ends = append(ends, end)
			}
		}
		return ctx, func(err error) {
			for i := len(ends) - 1; i >= 0; i-- { // the inner functions first
				ends[i](err)
			}
		}
	}
}

// A span is a backend call in progress.
type span struct {
	n    *notifier
	call Call
	sent time.Time
	end  func(error)
}

// startCall begins a call to the backend. If s is not empty, the call is for that shard. The slice
// others contains the contexts of further callers. Without CallStart, startCall allocates nothing.
func (n *notifier) startCall(
	ctx context.Context, kind string, items int, s ShardID, others []context.Context,
) (context.Context, span) {
	sp := span{n: n, call: Call{Kind: kind, Items: items, Shard: string(s)}}
	if f := n.h.CallStart; f != nil {
		c := sp.call
		c.Others = others
		ctx, sp.end = started(ctx, f, c)
	}
	sp.sent = time.Now()
	return ctx, sp
}

// started calls CallStart. If CallStart ends its goroutine, started returns ctx and no end
// function.
func started(ctx context.Context, f func(context.Context, Call) (context.Context, func(error)), c Call) (of context.Context, end func(error)) {
	of = ctx
	_ = goexit.Call(func() error { of, end = f(ctx, c); return nil })
	return of, end
}

// done ends the call and returns how long it took. If all items failed, items contains one of their
// errors.
func (s *span) done(err error, items ...error) time.Duration {
	took := time.Since(s.sent)
	if s.end != nil {
		goexit.Told(s.end)(err)
	}
	s.call.Took, s.call.Err = took, err
	s.n.call(s.call)
	s.n.heed(s.call.Kind, cmp.Or(err, cmp.Or(items...)))
	return took
}

// carried is a context that ends with one context and carries the values of another.
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

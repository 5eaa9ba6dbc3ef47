package core

import (
	"cmp"
	"context"
	"time"

	"github.com/tenure-go/tenure/internal/fsm"
	"github.com/tenure-go/tenure/internal/goexit"
)

// Hooks are functions that the Elector calls when something happens, for metrics and alarms. Each
// may be nil. Except for CallStart, the Elector calls the hooks in order, one at a time, from their
// own goroutine. It holds no lock during these calls, so a slow hook does not delay heartbeats. If
// the hooks fall behind by more than 65,536 events and calls, the Elector drops the oldest of them
// and reports EventsDropped. A hook must return: before Run ends, it waits for the hooks, at most
// for the drain budget. A hook that ends its goroutine (runtime.Goexit) counts as returned, but the
// log line about its event is lost.
type Hooks struct {
	// OnEvent runs for each event.
	OnEvent func(Event)
	// OnCall runs when a call to the backend has ended. An Observe is reported only if it fails,
	// because Observe blocks until something changes.
	OnCall func(Call)
	// CallStart runs before each call to the backend except Observe, for traces. Unlike the other
	// hooks, CallStart may run several times concurrently, and the call to the backend waits for
	// it. It returns the call's context, which must be ctx or derived from it, and a function to
	// run when the call has ended, or nil. Neither CallStart nor that function runs in the
	// goroutine of the call. If a method of Lease makes the call, ctx carries the values of that
	// method's context. If the member itself makes the call, ctx carries the values of Run's
	// context.
	CallStart func(ctx context.Context, c Started) (context.Context, func(error))
}

// Event is something that happened. Its Kind determines which of the other fields are set.
type Event struct {
	Kind    EventKind
	Fence   Fence     // the lease's
	Session SessionID // this process's session, or another one: see LeaseGranted and LeaseTransferred
	Peer    Member
	Err     error
	Asked   bool // in HandlerReturned: Err only shows that the handler was asked to stop
	Took    time.Duration
	Dropped int // in EventsDropped
}

// EventKind is the kind of an Event or a Move.
type EventKind string

// The kinds of events of this process's leases. Each event has the lease's Fence.
const (
	// LeaseGranted means that a lease has been granted. It precedes HandlerStarted. Session is the
	// session from which this process took over the shard. It is empty if no session owned the
	// shard, or if the owner handed the shard over.
	LeaseGranted EventKind = "granted"
	// LeaseEnded means that a lease may no longer be used. Err is a *RevokedError. Use errors.Is to
	// find the reason.
	LeaseEnded EventKind = "revoked"
	// HandlerStarted means that a handler starts.
	HandlerStarted EventKind = "started"
	// HandlerStopping means that a handler has been asked to stop. Err is the cause of its context.
	HandlerStopping EventKind = "asked to stop"
	// HandlerReturned means that a handler has returned Err and its commits are settled. Took is
	// how long the handler ran. One HandlerReturned follows each HandlerStarted, unless the handler
	// never returns.
	HandlerReturned EventKind = "given back"
	// HandlerStuck means that a lease is revoked and that its handler has stalled or has not
	// returned within the drain budget. Err is a *RevokedError. The shard is not released until the
	// handler returns.
	HandlerStuck EventKind = "stuck"
	// WriteRefused means that the store has refused a write because another session owns the shard.
	// Err is a *FencedError. Its Current is zero if the store does not report that session.
	WriteRefused EventKind = "write refused"
)

// The kinds of events of a lease that has also ended in the store, as far as this process knows.
// One such event follows each LeaseGranted, unless the handler never returns or Run ends first.
// Fence is the fence of the lease. Took is the time since the handler was asked to stop, or 0 if it
// was not asked.
const (
	LeaseReleased    EventKind = "released"    // the shard is free
	LeaseTransferred EventKind = "transferred" // to Session
	LeaseLost        EventKind = "lost"        // it was revoked first
	LeaseRefused     EventKind = "refused"     // the store refused the transfer
	LeaseUnknown     EventKind = "unknown"     // the reply was lost, and another lease followed
)

// The kinds of events of this process's session. Session is that session, if there is one.
const (
	SessionJoined     EventKind = "joined"
	SessionJoinFailed EventKind = "join failed"       // Err; tried again after a back-off
	SessionBeatFailed EventKind = "heartbeat failed"  // Err
	SessionLapsed     EventKind = "trust lapsed"      // Err says why: the last heartbeat's error, no answer, or this process did not run
	SessionRegained   EventKind = "trust regained"    // shards are kept, with new tokens
	SessionLost       EventKind = "session lost"      // Err, a *SessionLostError, names the session that ended it, if known; joins again
	SessionHalted     EventKind = "halted"            // Err matches ErrStoreChanged; nothing is granted
	SessionFailedOver EventKind = "store failed over" // its history may have forked; every lease gets a new token (I2); Err: what Open found
	SessionStoreLost  EventKind = "store lost writes" // Err is a *LostError about one shard, found after a failover
	SessionCallFailed EventKind = "call failed"       // Err of a claim, transfer, release, eviction or update
	SessionIneligible EventKind = "not eligible"      // Err says why: see Options.Eligible
	SessionEligible   EventKind = "eligible"          // for the first time, or again
)

// The kinds of events of another member. Peer is that member. Metrics and the board omit the
// prefix.
const (
	PeerJoined  EventKind = "peer joined"
	PeerUpdated EventKind = "peer updated" // it changed its state: see Elector.Update
	PeerGone    EventKind = "peer gone"    // it left, or another member evicted it
	PeerSilent  EventKind = "peer silent"  // for its TTL, as seen from here
	PeerDead    EventKind = "peer dead"    // its process, on this host and under this node label, has ended (C14)
	PeerEvicted EventKind = "peer evicted" // by this process
)

// The other kinds of events.
const (
	// RecordDamaged reports a record in the store that cannot be read (D1), once. Err is a
	// *DamagedError. If the damage of the record changes, the event is repeated at most once a
	// minute. At most 64 records are reported at a time. View.DamagedTotal counts all of them.
	RecordDamaged EventKind = "record damaged"
	// EventsDropped means that Dropped events and calls were lost because hooks were too slow.
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
	// "close", "commit" or "observe". For a Lease, it is "get", "list" or "read log".
	//
	// "read head" is a read before a handler starts or to settle a commit. "read" is a small read
	// after a lapse; heartbeats wait for its answer.
	Kind  string
	Items int // claims, hand-overs, fences, suspects or operations; otherwise 0
	Took  time.Duration
	Err   error // of the whole call
}

// JoinHooks returns hooks that call the given hooks in order. For example, they can be an
// application's hooks followed by the hooks of package tenureprom.
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
			for i := len(ends) - 1; i >= 0; i-- { // the inner functions first
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

// startCall begins a call to the backend. The call concerns shard s unless s is empty. others are
// the contexts of further callers. Without CallStart, it allocates nothing.
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

package core

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/fsm"
	"github.com/tenure-go/tenure/internal/goexit"
)

// A run is one lease of this process and its handler, from the grant until the machine settles the
// lease. Elector.mu guards a run.
type run struct {
	lease  *Lease
	h      Handler // nil if the shard is not served
	ctx    context.Context
	cancel context.CancelCauseFunc
	since  time.Time
	state  LeaseState
	stuck  time.Time     // when the run's state became LeaseStuck
	asked  fsm.Instant   // when the handler was asked to stop, or 0
	end    *fsm.Effect   // how the run was settled; nil until then
	again  bool          // an operator's rule ended the lease: contend for the shard again after this run is settled
	wait   time.Duration // the wait before the shard is claimed again, so that another member can claim it

	settled bool   // the handler has returned and its commits are settled
	joined  signal // wakes when the lease's goroutine ends
	over    signal // wakes when the lease is settled or the handler is stuck
	told    <-chan struct{}

	watchdog, overdue *time.Timer
}

// grant starts a lease. The machine has already settled the shard's previous lease (S11).
func (e *Elector) grant(eff *fsm.Effect) {
	f := eff.Fence
	r := &run{
		lease: e.newLease(f, e.sessions[f.Session], e.trust, eff.Head),
		h:     e.contended[f.Shard],
		since: time.Now(),
		state: LeaseStarting,
	}
	r.ctx, r.cancel = context.WithCancelCause(context.Background())
	e.runs[f.Shard] = r
	former := e.former[f.Shard]
	e.snap.move(f, LeaseGranted, takenOver(former), former == "")
	e.note.grant(f, former)
	if r.h == nil || r.lease.sess == nil {
		r.state = LeaseReturned
		r.cancel(ErrWithdrawn)
	}
	if len(e.rules.rules) > 0 {
		poke(e.rules.wake)
	}
	go e.serve(r, eff.HeadKnown)
}

// slowHooks is the longest time that a handler waits for hooks and the log to receive the grant of
// its lease.
const slowHooks = 10 * time.Millisecond

// takenOver returns an error with the session from which a shard was taken over, if any.
func takenOver(from SessionID) error {
	if from == "" {
		return nil
	}
	return fmt.Errorf("taken over from session %s, which ended", from)
}

// serve runs in a lease's goroutine. A handler that ends the goroutine (runtime.Goexit) counts as
// failed.
func (e *Elector) serve(r *run, headKnown bool) {
	var began time.Time
	var err error
	defer func() {
		if p := recover(); p != nil {
			panic(p) // the lease is not given up; the stack trace still contains the handler's frames
		}
		if !began.IsZero() {
			e.mu.Lock()
			r.state = LeaseReturned
			e.snap.bump()
			e.mu.Unlock()
		}
		r.lease.commits.settled() // S12: what is in flight is work, too
		e.join(r, began, err)
	}()
	if !headKnown {
		err = e.readHead(r)
	}
	if err == nil && e.begin(r) {
		select { // the grant is logged before the handler's own lines
		case <-r.told:
		case <-time.After(slowHooks):
		}
		began, err = time.Now(), goexit.Err
		err = r.h(r.ctx, r.lease)
	}
}

// readHead reads the shard's head, which no earlier lease can change. If a server is silent, the
// first attempt times out after half a TTL, like a claim (C4). Reading stops when the run ends. If
// the head is damaged, readHead returns an error, and the Elector gives up the lease (D1).
func (e *Elector) readHead(r *run) error {
	limit := min(e.o.TTL/2, e.o.CallTimeout)
	for wait := 5 * time.Millisecond; r.ctx.Err() == nil; wait = min(2*wait, max(e.o.TTL/12, 5*time.Millisecond)) {
		ctx, cancel := context.WithTimeout(r.ctx, limit)
		ctx, call := e.note.startCall(ctx, callReadHead, 0, r.lease.fence.Shard, nil)
		page, err := e.b.ReadLog(ctx, r.lease.fence.Shard, 0, 0)
		cancel()
		call.done(err)
		if err == nil {
			c := &r.lease.commits
			c.mu.Lock()
			c.head = page.Head
			c.mu.Unlock()
			return nil
		}
		limit = min(2*limit, e.o.CallTimeout)
		e.storeChanged(err)
		if errors.Is(err, driver.ErrDamaged) {
			e.damaged(err)
			return err
		}
		t := time.NewTimer(e.dice.jittered(3 * wait / 2))
		select {
		case <-t.C:
		case <-r.ctx.Done():
		}
		t.Stop()
	}
	return nil
}

func (e *Elector) begin(r *run) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if r.state != LeaseStarting {
		return false
	}
	r.state = LeaseHeld
	r.lease.Progress()
	if e.o.Watchdog > 0 && !driver.IsLock(r.lease.fence.Shard) { // the handler of a lock only waits for Unlock to be called
		r.watchdog = time.AfterFunc(e.o.Watchdog, func() { e.watch(r) })
	}
	r.lease.traceBegun()
	r.told = e.note.handlerStart(r.lease.fence)
	e.snap.bump()
	return true
}

// watch ends the lease of a handler that makes no progress.
func (e *Elector) watch(r *run) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !r.state.usable() || e.phase == stopped {
		return
	}
	idle := e.clk.now().Sub(fsm.Instant(r.lease.progress.Load()))
	if idle < e.o.Watchdog {
		r.watchdog.Reset(e.o.Watchdog - idle)
		return
	}
	e.queue = append(e.queue, fsm.Input{Kind: fsm.InStalled, Shard: r.lease.fence.Shard, Token: r.lease.fence.Token})
	e.drainQueue()
}

// askToStop ends the handler's context. Later causes have no effect.
func (e *Elector) askToStop(r *run, cause error) {
	switch r.state {
	case LeaseStarting:
		r.state = LeaseReturned
	case LeaseHeld:
		r.state = LeaseDraining
	default:
		return
	}
	r.asked = e.clk.now()
	r.cancel(cause)
	e.snap.move(r.lease.fence, HandlerStopping, cause, true)
	e.note.event(Event{Kind: HandlerStopping, Fence: r.lease.fence, Err: cause})
}

func (e *Elector) revoke(f Fence, cause fsm.Cause) {
	r := e.runs[f.Shard]
	err := r.lease.end(cause)
	r.cancel(err)
	switch cause {
	case fsm.CauseReleased, fsm.CauseReturned, fsm.CauseIneligible, fsm.CauseFailback: // shown by HandlerReturned
	default:
		e.snap.move(f, LeaseEnded, err, false)
	}
	e.note.revoke(f, cause, e.m.Owner(f.Shard))
	switch {
	case r.state == LeaseStarting:
		r.state = LeaseReturned
		return
	case !r.state.running():
		return
	}
	r.state = LeaseRevoked
	if cause == fsm.CauseDrainBudget || cause == fsm.CauseStalled {
		e.markStuck(r, cause)
		return
	}
	r.overdue = time.AfterFunc(e.o.DrainBudget, func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		if e.phase != stopped {
			e.markStuck(r, cause)
		}
	})
}

func (e *Elector) markStuck(r *run, cause fsm.Cause) {
	if r.state != LeaseRevoked {
		return
	}
	r.state, r.stuck = LeaseStuck, time.Now()
	poke(e.trouble.wake)
	r.over.wake()
	e.snap.move(r.lease.fence, HandlerStuck, nil, false)
	e.note.stuck(r.lease.fence, cause)
	e.changed.wake()
	e.snap.bump()
}

// join records that the handler has returned, or was never called.
func (e *Elector) join(r *run, began time.Time, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	r.state, r.settled = LeaseReturned, true
	r.lease.traceJoined()
	r.joined.wake()
	asked := isStop(r.ctx, err)
	r.cancel(revoked(r.lease.fence, fsm.CauseReturned))
	r.stopTimers()
	poke(e.trouble.wake)
	if !began.IsZero() {
		e.note.handlerReturn(r.lease.fence, time.Since(began), err, asked)
	}
	e.snap.move(r.lease.fence, HandlerReturned, err, err == nil || asked)
	if e.phase == stopped {
		return
	}
	e.queue = append(e.queue, fsm.Input{Kind: fsm.InDrained, Shard: r.lease.fence.Shard, Token: r.lease.fence.Token})
	e.drainQueue()
}

func (r *run) stopTimers() {
	if r.watchdog != nil {
		r.watchdog.Stop()
	}
	if r.overdue != nil {
		r.overdue.Stop()
	}
}

// settle removes a run whose lease is settled, and wakes its waiters.
func (e *Elector) settle(eff *fsm.Effect) {
	r := e.runs[eff.Fence.Shard]
	delete(e.runs, eff.Fence.Shard)
	if e.traced != nil {
		r.lease.traceAcks()
	}
	e.acked.keep(r)
	end := *eff
	r.end = &end
	e.note.event(settledAs(r, eff, e.clk.now()))
	r.over.wake()
	if _, wanted := e.contended[eff.Fence.Shard]; r.again && wanted {
		e.queue = append(e.queue, fsm.Input{Kind: fsm.InWant, Shard: eff.Fence.Shard, Wait: r.wait})
	}
	e.changed.wake()
	e.snap.bump()
}

// awaitOver waits until a run is settled, its handler is stuck, Run has ended, or ctx has ended. It
// reports whether the handler is stuck and, if ctx ended, returns its cause.
func (e *Elector) awaitOver(ctx context.Context, r *run) (stuck bool, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for r.end == nil && r.state != LeaseStuck && e.phase != stopped && err == nil {
		over := r.over.wait()
		e.mu.Unlock()
		select {
		case <-over:
		case <-e.ended:
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
		e.mu.Lock()
	}
	return r.state != LeaseReturned, err
}

// awaitJoin waits until a run's handler has returned and its commits are settled.
func (e *Elector) awaitJoin(r *run) {
	e.mu.Lock()
	if r.settled {
		e.mu.Unlock()
		return
	}
	joined := r.joined.wait()
	e.mu.Unlock()
	<-joined
}

// handedOver returns nil if the run's lease was passed to the given session, and otherwise an error
// with the reason. Call handedOver after awaitOver.
func (r *run) handedOver(to SessionID) error {
	if r.end == nil { // Run has ended
		return r.lease.Err()
	}
	shard := r.lease.fence.Shard
	switch end := r.end; end.Outcome {
	case fsm.OutcomeTransferred:
		if end.Owner.Session != to {
			return fmt.Errorf("tenure: shard %q: not handed over to %s: a Withdraw, a later HandOver or a Contend gave it to %s",
				shard, to, end.Owner.Session)
		}
	case fsm.OutcomeReleased:
		return fmt.Errorf("tenure: shard %q: released instead: %w", shard, ErrNoTarget)
	case fsm.OutcomeUnknown:
		return fmt.Errorf("tenure: shard %q: hand-over to %s: %w: the reply was lost, and the shard now belongs to %q",
			shard, to, ErrUnknown, end.Owner.Session)
	case fsm.OutcomeRefused:
		return fmt.Errorf("tenure: shard %q: not handed over: %w", shard, end.Err)
	case fsm.OutcomeLost:
		return revoked(end.Fence, end.Cause)
	}
	return nil
}

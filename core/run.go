package core

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/fsm"
)

// run is one lease here and its handler, from the grant until the machine says that the
// lease is settled. Elector.mu guards it.
type run struct {
	lease  *Lease
	h      Handler // nil: nobody serves it
	ctx    context.Context
	cancel context.CancelCauseFunc
	since  time.Time
	state  LeaseState
	stuck  time.Time     // when its state became so
	asked  fsm.Instant   // when its handler was asked to stop; 0: it was not
	end    *fsm.Effect   // once settled: how
	again  bool          // to be contended for anew once settled: an operator's rule ends it
	wait   time.Duration // before it is claimed again, so that another member can

	settled bool   // its handler has returned, and its commits are settled
	joined  signal // the lease's goroutine ends
	over    signal // the lease is settled, or the handler stuck

	watchdog, overdue *time.Timer
}

// grant starts a lease. The machine has settled the one before (S11).
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
	e.snap.move(f, MoveGranted, takenOver(former), former == "")
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

// takenOver says of a grant whom the shard was taken over from; nil if from nobody.
func takenOver(from SessionID) error {
	if from == "" {
		return nil
	}
	return fmt.Errorf("taken over from session %s, which ended", from)
}

// serve is a lease's goroutine.
func (e *Elector) serve(r *run, headKnown bool) {
	var began time.Time
	var err error
	if !headKnown {
		err = e.readHead(r)
	}
	if err == nil && e.begin(r) {
		began = time.Now()
		err = r.h(r.ctx, r.lease)
		e.mu.Lock()
		r.state = LeaseReturned
		e.snap.bump()
		e.mu.Unlock()
	}
	r.lease.commits.settled() // S12: what is in flight is work, too
	e.join(r, began, err)
}

// readHead finds the shard's head, which no earlier lease can move any more. A server that
// is silent costs half a TTL, as in a claim (C4). It gives up with the run, and with an
// error if the head is damaged: nothing could be committed, so that the lease is given back
// (D1).
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

// begin reports whether the handler is to be called.
func (e *Elector) begin(r *run) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if r.state != LeaseStarting {
		return false
	}
	r.state = LeaseHeld
	r.lease.Progress()
	if e.o.Watchdog > 0 {
		r.watchdog = time.AfterFunc(e.o.Watchdog, func() { e.watch(r) })
	}
	r.lease.traceBegun()
	e.note.handlerStart(r.lease.fence)
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

// askToStop ends the handler's context. Later causes change nothing.
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
	e.snap.move(r.lease.fence, MoveStopped, cause, true)
	e.note.stop(r.lease.fence, cause)
}

// revoke ends the lease of fence f.
func (e *Elector) revoke(f Fence, cause fsm.Cause) {
	r := e.runs[f.Shard]
	err := r.lease.end(cause)
	r.cancel(err)
	switch cause {
	case fsm.CauseReleased, fsm.CauseReturned, fsm.CauseIneligible, fsm.CauseFailback: // MoveBack says it
	default:
		e.snap.move(f, MoveRevoked, err, false)
	}
	e.note.revoke(f, cause)
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
	e.snap.move(r.lease.fence, MoveStuck, nil, false)
	e.note.stuck(r.lease.fence, cause)
	e.changed.wake()
	e.snap.bump()
}

// join notes that the handler has returned, or never was called.
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
	e.snap.move(r.lease.fence, MoveBack, err, err == nil || asked)
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

// settle forgets a run whose lease is settled, and wakes those that wait for it.
func (e *Elector) settle(eff *fsm.Effect) {
	r := e.runs[eff.Fence.Shard]
	delete(e.runs, eff.Fence.Shard)
	if e.traced != nil {
		r.lease.traceAcks()
	}
	e.acked.keep(r)
	end := *eff
	r.end = &end
	e.note.settled(settledAs(r, eff, e.clk.now()))
	r.over.wake()
	if _, wanted := e.contended[eff.Fence.Shard]; r.again && wanted {
		e.queue = append(e.queue, fsm.Input{Kind: fsm.InWant, Shard: eff.Fence.Shard, Wait: r.wait})
	}
	e.changed.wake()
	e.snap.bump()
}

// awaitOver waits until a run is settled, or its handler is stuck, which it reports, or
// Run has ended, or ctx, whose cause it returns.
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

// awaitJoin waits until a run's handler has returned, and its commits are settled.
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

// handedOver says whether the lease of a run that awaitOver returned went to session to.
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

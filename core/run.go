package core

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/core/fsm"
)

// run is one lease here and its handler, from the grant until the handler is
// joined and the shard is no longer this process's. Elector.mu guards it.
type run struct {
	lease  *Lease
	h      Handler // nil: nobody serves it
	ctx    context.Context
	cancel context.CancelCauseFunc
	since  time.Time

	headKnown bool
	started   bool // the handler was called
	stopping  bool // ctx has ended
	revoked   bool
	lost      bool // revoked, and not to be given back
	returned  bool // the handler has returned; what it sent last may not be settled yet
	joined    bool // that is settled too, or the handler never started
	isStuck   bool
	to        SessionID // successor asked for
	outcome   error     // of a handover

	done  chan struct{} // closed by the end of the lease's goroutine
	gone  chan struct{} // closed when the shard is no longer this process's
	stuck chan struct{} // closed when the handler is stuck

	watchdog, overdue *time.Timer
}

// grant starts a lease. The machine has joined the handler of the one before
// (S11).
func (e *Elector) grant(eff *fsm.Effect) {
	f := eff.Fence
	r := &run{
		lease:     e.newLease(f, e.sessions[f.Session], e.trust, eff.Head),
		h:         e.contended[f.Shard],
		headKnown: eff.HeadKnown,
		since:     time.Now(),
		done:      make(chan struct{}),
		gone:      make(chan struct{}),
		stuck:     make(chan struct{}),
	}
	r.ctx, r.cancel = context.WithCancelCause(context.Background())
	if old := e.runs[f.Shard]; old != nil {
		e.finish(old)
	}
	e.runs[f.Shard] = r
	e.snap.move(f, MoveGranted, nil)
	e.note.grant(f)
	if r.h == nil || r.lease.sess == nil {
		r.cancel(ErrWithdrawn)
	}
	go e.serve(r)
}

// serve is a lease's goroutine.
func (e *Elector) serve(r *run) {
	defer close(r.done)
	if !r.headKnown {
		e.readHead(r)
	}
	var began time.Time
	var err error
	if e.begin(r) {
		began = time.Now()
		err = r.h(r.ctx, r.lease)
		e.mu.Lock()
		r.returned, r.isStuck = true, false
		e.snap.bump()
		e.mu.Unlock()
	}
	r.lease.commits.settled() // S12: what is in flight is work, too
	e.join(r, began, err)
}

// readHead finds the shard's head, which no earlier lease can move any more. It
// gives up with the run.
func (e *Elector) readHead(r *run) {
	for wait := 5 * time.Millisecond; r.ctx.Err() == nil; wait = min(2*wait, max(e.o.TTL/12, 5*time.Millisecond)) {
		ctx, cancel := context.WithTimeout(r.ctx, e.o.CallTimeout)
		sent := time.Now()
		page, err := e.b.ReadLog(ctx, r.lease.fence.Shard, 0, 0)
		cancel()
		e.note.call(CallReadHead, 0, time.Since(sent), err)
		if err == nil {
			c := &r.lease.commits
			c.mu.Lock()
			c.head = page.Head
			c.mu.Unlock()
			return
		}
		e.storeChanged(err)
		t := time.NewTimer(wait/2 + time.Duration(rand.Int64N(int64(wait))))
		select {
		case <-t.C:
		case <-r.ctx.Done():
		}
		t.Stop()
	}
}

// begin reports whether the handler is to be called.
func (e *Elector) begin(r *run) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if r.ctx.Err() != nil {
		return false
	}
	r.started = true
	r.lease.Progress()
	if e.o.Watchdog > 0 {
		r.watchdog = time.AfterFunc(e.o.Watchdog, func() { e.watch(r) })
	}
	e.note.handlerStart(r.lease.fence)
	e.snap.bump()
	return true
}

// watch ends the lease of a handler that makes no progress.
func (e *Elector) watch(r *run) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if r.returned || r.joined || r.revoked || e.phase == stopped {
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
	if r.stopping || r.joined {
		return
	}
	r.stopping = true
	r.cancel(cause)
	e.snap.move(r.lease.fence, MoveStopped, cause)
}

// revoke ends the lease of fence f.
func (e *Elector) revoke(f Fence, cause fsm.Cause) {
	r := e.runs[f.Shard]
	if r == nil || r.lease.fence != f || r.revoked {
		return
	}
	r.revoked = true
	r.lost = cause != fsm.CauseReleased && cause != fsm.CauseReturned
	err := r.lease.end(cause)
	r.stopping = true
	r.cancel(err)
	if r.lost {
		e.snap.move(f, MoveRevoked, err)
	}
	e.note.revoke(f, cause)
	switch {
	case r.joined && r.lost:
		r.lose(err)
		e.finish(r)
	case r.joined || r.returned || !r.started:
	case cause == fsm.CauseDrainBudget || cause == fsm.CauseStalled:
		e.markStuck(r, cause)
	default:
		r.overdue = time.AfterFunc(e.o.DrainBudget, func() {
			e.mu.Lock()
			defer e.mu.Unlock()
			if e.phase != stopped {
				e.markStuck(r, cause)
			}
		})
	}
}

func (r *run) lose(err error) {
	if r.outcome == nil {
		r.outcome = err
	}
}

func (e *Elector) markStuck(r *run, cause fsm.Cause) {
	if r.isStuck || r.returned || r.joined {
		return
	}
	r.isStuck = true
	close(r.stuck)
	e.snap.move(r.lease.fence, MoveStuck, nil)
	e.note.stuck(r.lease.fence, cause)
	e.changed.wake()
	e.snap.bump()
}

// join takes in that the handler has returned, or never was called.
func (e *Elector) join(r *run, began time.Time, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	r.joined, r.isStuck = true, false
	r.stopping = true
	asked := isStop(r.ctx, err)
	r.cancel(ErrReleased)
	r.stopTimers()
	if r.started {
		e.note.handlerReturn(r.lease.fence, time.Since(began), err, asked)
	}
	e.snap.move(r.lease.fence, MoveBack, err)
	if e.phase == stopped {
		return
	}
	e.queue = append(e.queue, fsm.Input{Kind: fsm.InDrained, Shard: r.lease.fence.Shard, Token: r.lease.fence.Token})
	e.drainQueue()
	if r.lost {
		r.lose(context.Cause(r.lease.ctx))
		e.finish(r)
	}
}

func (r *run) stopTimers() {
	if r.watchdog != nil {
		r.watchdog.Stop()
	}
	if r.overdue != nil {
		r.overdue.Stop()
	}
}

// released: the store has no lease of fence f any more.
func (e *Elector) released(f driver.Fence) {
	r := e.runs[f.Shard]
	if r == nil || r.lease.fence != f || !r.joined {
		return // another lease's, or abandoned
	}
	if r.to != "" {
		r.lose(fmt.Errorf("tenure: shard %q: released instead: %w", f.Shard, ErrNoTarget))
	}
	e.finish(r)
}

// transferred: a handover of the lease was answered with err.
func (e *Elector) transferred(h driver.Handover, err error) {
	r := e.runs[h.Fence.Shard]
	if r == nil || r.lease.fence != h.Fence || !r.joined {
		return
	}
	var fenced *driver.FencedError
	switch {
	case err == nil:
		e.finish(r)
	case errors.As(err, &fenced) && fenced.Current != (driver.Owner{}):
		// Perhaps an attempt before came, whose reply was lost: gone will tell.
	case driver.NotApplied(err) && !isRetryable(err):
		r.lose(fmt.Errorf("tenure: shard %q: not handed over: %w", h.Fence.Shard, err))
		e.finish(r)
	}
}

// gone: the record of a shard, which was of fence f, is owner's by now. Where a
// reply told so before, the run is finished already.
func (e *Elector) gone(f driver.Fence, owner driver.Owner) {
	r := e.runs[f.Shard]
	if r == nil || r.lease.fence != f || !r.joined || !r.revoked || r.lost {
		return
	}
	switch {
	case r.to == "" || owner.Session == r.to:
		e.finish(r)
	case owner.Token == f.Token:
		e.released(f)
	default:
		r.lose(fmt.Errorf("tenure: shard %q: whether session %s had it is %w: a reply was lost, and the record names %q, token %d, by now",
			f.Shard, r.to, ErrUnknown, owner.Session, owner.Token))
		e.finish(r)
	}
}

// settleAll: the session is gone, and whatever it held.
func (e *Elector) settleAll() {
	for _, r := range e.runs {
		if r.joined {
			r.lose(&RevokedError{Fence: r.lease.fence, Cause: fsm.CauseSessionLost})
			e.finish(r)
		}
	}
}

// finish forgets a run.
func (e *Elector) finish(r *run) {
	if e.runs[r.lease.fence.Shard] == r {
		delete(e.runs, r.lease.fence.Shard)
		e.acked.keep(r)
	}
	select {
	case <-r.gone:
	default:
		close(r.gone)
		e.changed.wake()
		e.snap.bump()
	}
}

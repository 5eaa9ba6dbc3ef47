package core

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/fsm"
)

// feed passes one input to the machine and carries out the effects, without waiting.
func (e *Elector) feed(in fsm.Input) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.queue = append(e.queue, in)
	e.drainQueue()
}

// drainQueue passes the queued inputs to the machine. The caller must hold e.mu.
func (e *Elector) drainQueue() {
	e.clk.sample()
	e.note.step(true)
	defer e.note.step(false)
	for len(e.queue) > 0 {
		in := e.queue[0]
		e.queue = e.queue[1:]
		now := e.clk.now()
		effects := e.m.Step(now, in)
		if e.traced != nil {
			e.traced.Step(now, &in, effects)
		}
		for i := range effects {
			e.do(&effects[i])
		}
		if in.Kind == fsm.InJoined && in.Err == nil && e.observing != nil && !e.reading {
			// The pending Observe was sent before this member joined. That call requests no
			// heartbeats, and may already have reported this member. Unless that call is a full
			// read, nothing else would end it.
			e.observing()
		}
		if in.Kind == fsm.InObserved && in.View != nil {
			e.rules.look(in.View)
			e.unread, e.heard = 0, now
		}
		if in.Kind == fsm.InBeaten && in.Err == nil && (e.unread == 0 || now.Sub(e.unread) > e.o.TTL/4) {
			e.heard = now
		}
		if n, _ := e.m.Updated(); n != e.stored {
			e.stored = n
			e.changed.wake()
		}
		if changesView(&in, effects) {
			e.snap.bump()
		}
	}
	e.queue = nil
	if at := e.m.WakeAt(); at < e.armed {
		poke(e.kick)
	}
}

// keepTime steps the machine at WakeAt, and samples the suspended time as often as necessary.
func (e *Elector) keepTime(ctx context.Context) {
	t := time.NewTimer(time.Hour)
	defer t.Stop()
	for {
		e.mu.Lock()
		e.clk.sample()
		now := e.clk.now()
		if e.m.WakeAt() <= now {
			e.queue = append(e.queue, fsm.Input{Kind: fsm.InWake})
			e.drainQueue()
			now = e.clk.now()
		}
		at := e.m.WakeAt()
		if e.clk.ticks && e.m.Trusted(now) {
			at = min(at, now.Add(e.o.Margin/2))
		}
		e.armed = at
		e.mu.Unlock()

		d := time.Hour
		if at != fsm.Never {
			d = max(0, min(d, at.Sub(now)))
		}
		t.Reset(d)
		select {
		case <-t.C:
		case <-e.kick:
		case <-ctx.Done():
			return
		}
	}
}

// changesView reports whether a step may have changed the View.
func changesView(in *fsm.Input, effects []fsm.Effect) bool {
	switch in.Kind {
	case fsm.InObserved:
		if v := in.View; v != nil && (len(v.Members) > 0 || len(v.Gone) > 0 || len(v.Shards) > 0) {
			return true
		}
	case fsm.InAcquired, fsm.InTransferred, fsm.InReleased, fsm.InFenced, fsm.InDrained, fsm.InUpdate:
		return true
	default: // the others change a View only through their effects
	}
	for i := range effects {
		switch effects[i].Kind {
		case fsm.EffGrant, fsm.EffRevoke:
			return true
		case fsm.EffEvent:
			switch effects[i].Event {
			case fsm.EventBeatFailed, fsm.EventCallFailed, fsm.EventCloseFailed:
			default:
				return true
			}
		default: // the others request a call
		}
	}
	return false
}

// do carries out one effect. The caller holds e.mu.
func (e *Elector) do(eff *fsm.Effect) {
	switch eff.Kind {
	case fsm.EffJoin, fsm.EffBeat, fsm.EffAcquire, fsm.EffTransfer, fsm.EffRelease, fsm.EffEvict, fsm.EffUpdate, fsm.EffRead,
		fsm.EffClose:
		if eff.Kind == fsm.EffAcquire {
			e.claiming, e.former = eff.Call, formers(eff)
		}
		c := *eff
		s := e.sessions[c.Session]
		e.calls.Go(func() { e.call(c, s) })
	case fsm.EffResync:
		e.resync = true
		if e.observing != nil && !e.reading {
			e.observing()
		}
	case fsm.EffGrant:
		e.extend(eff.Session, eff.Until)
		e.grant(eff)
	case fsm.EffExtend:
		e.extend(eff.Session, eff.Until)
	case fsm.EffRevoke:
		r := e.runs[eff.Fence.Shard]
		e.revoke(eff.Fence, eff.Cause)
		r.lease.traceEnded()
	case fsm.EffSettled:
		e.settle(eff)
	case fsm.EffYield:
		e.askToStop(e.runs[eff.Fence.Shard], e.yieldErr(eff.Cause))
	case fsm.EffEvent:
		e.event(eff)
	}
}

// extend postpones the end of a session's trust, and never moves it to an earlier time.
func (e *Elector) extend(s SessionID, until fsm.Instant) {
	if e.trust.session != s {
		e.trust = &trust{session: s}
	}
	if int64(until) > e.trust.until.Load() {
		e.trust.until.Store(int64(until))
	}
}

func (e *Elector) event(eff *fsm.Effect) {
	var lost driver.Session
	switch eff.Event {
	case fsm.EventHalted:
		if e.halted == nil && e.o.ReturnHalted {
			close(e.halting)
		}
		e.halted = eff.Err
	case fsm.EventSessionLost:
		lost = e.sessions[eff.Session]
		delete(e.sessions, eff.Session)
	case fsm.EventCloseFailed:
		e.closeErr = fmt.Errorf("tenure: session %s could not be closed and is left to be evicted: %w", eff.Session, eff.Err)
	default: // the other effects are only passed on
	}
	switch kind := eventKinds[eff.Event]; {
	case kind == "": // Run returns its error
	case eff.Peer.Session != "":
		e.note.peer(Event{Kind: kind, Peer: eff.Peer})
	default:
		err := eff.Err
		if kind == SessionLapsed && err == nil {
			err = errors.New("heartbeats have no answer: the store, or the way to it, is silent")
		}
		e.note.session(Event{Kind: kind, Session: eff.Session, Err: err}, lost)
	}
}

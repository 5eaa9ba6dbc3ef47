package core

import (
	"context"
	"errors"
	"time"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/fsm"
)

// call carries out an effect that requests a call to the store, and passes the reply unchanged to
// the machine.
func (e *Elector) call(eff fsm.Effect, s driver.Session) {
	ctx, cancel := context.WithTimeout(e.callCtx, eff.Timeout)
	defer cancel()
	in := fsm.Input{Call: eff.Call}
	kind, items := callOf(&eff)
	ctx, sp := e.note.startCall(e.forCall(ctx, eff.Call), kind, items, "", nil)
	switch eff.Kind {
	case fsm.EffJoin:
		in.Kind = fsm.InJoined
		s, in.Err = e.b.Join(ctx, eff.Member)
	case fsm.EffBeat:
		in.Kind = fsm.InBeaten
		if in.Err = errMuted; !e.trouble.muted.Load() {
			in.Err = s.Beat(ctx)
		}
	case fsm.EffAcquire:
		in.Kind = fsm.InAcquired
		in.Results, in.Err = s.Acquire(ctx, eff.Claims)
	case fsm.EffTransfer:
		in.Kind = fsm.InTransferred
		in.Results, in.Err = s.Transfer(ctx, eff.Transfers)
	case fsm.EffRelease:
		in.Kind = fsm.InReleased
		in.Err = s.Release(ctx, eff.Fences)
	case fsm.EffEvict:
		in.Kind = fsm.InEvicted
		in.Evictions, in.Err = s.Evict(ctx, eff.Suspects)
	case fsm.EffUpdate:
		in.Kind = fsm.InUpdated
		in.Err = s.Update(ctx, eff.State)
	case fsm.EffRead:
		in.Kind = fsm.InRead
		_, in.Err = e.b.Get(ctx, driver.PingShard, "0")
	case fsm.EffClose:
		in.Kind = fsm.InClosed
		in.Err = closeSession(ctx, s, e.o.RankDelay, eff.Timeout/3)
	default: // the other effects make no call
	}
	sp.done(in.Err, itemsError(len(in.Results), func(i int) error { return in.Results[i].Err }))
	e.damaged(in.Err)
	e.resultsDamaged(in.Results)

	e.mu.Lock()
	defer e.mu.Unlock()
	if eff.Kind == fsm.EffJoin && in.Err == nil {
		e.sessions[eff.Session] = s
	}
	e.queue = append(e.queue, in)
	e.drainQueue()
	if eff.Call == e.claiming {
		e.claiming, e.former = 0, nil
	}
}

// errMuted is the heartbeat error of a member that can neither commit nor release (C18).
var errMuted = errors.New("tenure: not sent: others are to evict this member, as the store denies its releases")

// callOf returns the kind of call that an effect requests and its number of items, for hooks.
func callOf(eff *fsm.Effect) (kind string, items int) {
	switch eff.Kind {
	case fsm.EffJoin:
		return callJoin, 0
	case fsm.EffBeat:
		return callBeat, 0
	case fsm.EffAcquire:
		return callAcquire, len(eff.Claims)
	case fsm.EffTransfer:
		return callTransfer, len(eff.Transfers)
	case fsm.EffRelease:
		return callRelease, len(eff.Fences)
	case fsm.EffEvict:
		return callEvict, len(eff.Suspects)
	case fsm.EffUpdate:
		return callUpdate, 0
	case fsm.EffRead:
		return callRead, 0
	default:
		return callClose, 0
	}
}

// formers returns the former sessions of the claimed shards.
func formers(eff *fsm.Effect) map[ShardID]SessionID {
	var had map[ShardID]SessionID
	for i := range eff.Claims {
		if c := &eff.Claims[i]; c.Seen.Session != "" && c.Seen.Session != eff.Session {
			if had == nil {
				had = make(map[ShardID]SessionID)
			}
			had[c.Shard] = c.Seen.Session
		}
	}
	return had
}

// closeSession closes a session, so that other members need not wait for its TTL. If the close
// fails or its outcome is unknown, closeSession tries again after delay, until ctx ends. Closing a
// session twice is not an error. Each attempt waits at most patience for an answer, because one of
// several servers may be silent.
func closeSession(ctx context.Context, s driver.Session, delay, patience time.Duration) error {
	for {
		once, cancel := context.WithTimeout(ctx, patience)
		err := s.Close(once)
		cancel()
		if !errors.Is(err, ErrRetry) && !driver.Unknown(err) {
			return err
		}
		t := time.NewTimer(delay)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return err
		}
	}
}

// observe calls Observe repeatedly, each time with the cursor that the last call returned. A resync
// ends the call in progress and starts with an empty cursor. Until the member has joined, the
// machine requests no resyncs, and a timer starts the full reads (S13). The time limit of a full
// read is a third of the TTL or three times the duration of the last full read, whichever is
// longer. This limit doubles after each failure. A hanging server therefore hides the other members
// for only a short time.
func (e *Elector) observe(ctx context.Context) {
	var cursor driver.Cursor
	var beats []driver.Beat
	full := e.clk.now() // when the full state was last requested
	patience := e.o.TTL / 3
	for ctx.Err() == nil {
		call, cancel := context.WithCancel(ctx)
		e.mu.Lock()
		sent := e.clk.now()
		if e.resync || sent.Sub(full) > 2*e.o.Resync {
			cursor, e.resync = "", false
		}
		beats = e.m.AppendWatch(beats[:0])
		e.observing, e.reading = cancel, cursor == ""
		e.mu.Unlock()

		limit := max(full.Add(2*e.o.Resync).Sub(sent), e.o.CallTimeout)
		if cursor == "" {
			full, limit = sent, min(patience, e.o.CallTimeout)
		}
		timed, stop := context.WithTimeout(call, limit)
		v, err := e.b.Observe(timed, driver.ObserveQuery{Since: cursor, Beats: beats})
		stop()
		wanted := call.Err() == nil // a resync has not ended the call
		cancel()
		switch {
		case err == nil:
			e.heed(callObserve, nil)
			if cursor == "" {
				patience = max(e.o.TTL/3, 3*e.clk.now().Sub(sent))
			}
			cursor = v.Cursor
			e.viewDamaged(v)
			e.failedOver(v)
			e.feed(fsm.Input{Kind: fsm.InObserved, View: v, SentAt: sent})
		case wanted && !(errors.Is(err, context.DeadlineExceeded) && cursor != ""):
			e.note.call(Call{Kind: callObserve, Took: e.clk.now().Sub(sent), Err: err})
			e.mu.Lock()
			e.unread = e.clk.now()
			e.mu.Unlock()
			e.heed(callObserve, err)
			if errors.Is(err, ErrClosed) {
				close(e.closed)
				return
			}
			e.storeChanged(err)
			if cursor == "" {
				patience = min(2*patience, e.o.CallTimeout)
			}
			e.pause(ctx)
		}
	}
}

// storeChanged halts the machine if err means that the store was replaced (I1). It handles errors
// of calls that the machine did not request.
func (e *Elector) storeChanged(err error) {
	if errors.Is(err, ErrStoreChanged) {
		e.feed(fsm.Input{Kind: fsm.InStoreChanged, Err: err})
	}
}

// pause backs off after a failed Observe. A requested resync ends the pause.
func (e *Elector) pause(ctx context.Context) {
	again, cancel := context.WithTimeout(ctx, max(e.dice.jittered(e.o.TTL/12), time.Millisecond))
	defer cancel()
	e.mu.Lock()
	e.observing, e.reading = cancel, false
	if e.resync {
		cancel()
	}
	e.mu.Unlock()
	<-again.Done()
}

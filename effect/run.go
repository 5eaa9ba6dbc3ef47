package effect

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http/httptrace"
	"slices"
	"sync/atomic"
	"time"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/internal/goexit"
)

// If the effect has a record, make continues it.
func (l *Ledger) make(f *flight) outcome {
	e := Effect{Key: f.key, ID: ID(l.o.Scope, f.key), State: Begun, Token: l.lease.Token(), Began: now()}
	l.mu.Lock()
	full := len(l.idle) >= l.o.MaxInDoubt
	l.mu.Unlock()
	if full { // the effect may be open already, or have ended
		found, err := l.record(l.lease.Context(), f.key)
		switch {
		case err != nil:
			return outcome{err: err}
		case found == nil:
			l.o.Stats.full.Add(1)
			return outcome{err: fmt.Errorf("tenure: effect %q of shard %q: not begun: %w: %d: decide about some",
				f.key, l.lease.Shard(), ErrFull, l.o.MaxInDoubt)}
		}
		return l.meet(f, *found)
	}
	value := encode(e)
	item, err := l.w.put(f.key, core.PutIf(recordPrefix+f.key, value, core.Absent), core.Put(openPrefix+f.key, value))
	switch {
	case err != nil:
		return outcome{err: fmt.Errorf("tenure: effect %q: its function is not called: %w", f.key, err)}
	case item == nil:
		l.o.Stats.begun.Add(1)
		f.met = &e
		return l.pursue(f, e, false)
	}
	found, err := decode(item, recordPrefix, l.o.Scope)
	if err != nil {
		return outcome{err: err}
	}
	return l.meet(f, found)
}

func (l *Ledger) meet(f *flight, e Effect) outcome {
	later, again := l.takeLater(f.key)
	switch {
	case !e.State.Open(): // if the reply to the last write was lost, idle still lists the effect
		l.take(f.key)
		return l.answer(e, nil)
	case later.e.State == Repeat && f.fn != nil:
		e = later.e
	case later.e.State != "":
		return l.write(later.e, later.e.Result, later.cause)
	}
	f.met = &e
	hand := l.byHand(e)
	ours := e.State == InDoubt && e.Token == l.lease.Token()
	if hand == nil && ours && !again { // the effect was left to a person under this lease
		l.leave(e)
		return outcome{err: &InDoubtError{Shard: l.lease.Shard(), Effect: e}}
	}
	if hand != nil || e.State != Repeat {
		if e.State == Begun {
			e.Reason = l.unended(&e)
		}
		var d Decision
		if hand != nil {
			d, e.Author = decision(hand), clean(hand.Author)
			if hand.Author+hand.Writer != "" { // an operator wrote the rule
				l.o.Logger.Info("tenure: effect decided by an operator", slog.String("key", e.Key),
					slog.String("outcome", hand.Outcome), slog.String("author", e.Author), slog.String("writer", clean(hand.Writer)),
					slog.String("reason", clean(hand.Reason)))
			}
		} else {
			var err error
			if d, err = l.decide(f, e); err != nil {
				return l.undecided(e, err)
			}
		}
		if d.State != Repeat || f.fn == nil {
			return l.settle(e, d, nil)
		}
		e.Reason = clean(d.Reason)
		e.Repeats++
	}
	if f.fn == nil {
		l.leave(e)
		return outcome{again: true}
	}
	// Writing the intent again under this lease proves that the lease is current.
	undone := e.undone
	e.State, e.Token, e.undone = Begun, l.lease.Token(), false
	value := encode(e)
	if _, err := l.w.put("", core.Put(recordPrefix+f.key, value), core.Put(openPrefix+f.key, value)); err != nil {
		l.postpone(e, nil)
		return l.doubtful(e, err)
	}
	l.take(f.key)
	return l.pursue(f, e, !undone)
}

// The caller has written the effect's intent. If unsure is true, the effect may already have
// happened.
func (l *Ledger) pursue(f *flight, e Effect, unsure bool) outcome {
	ctx, cancel := l.bounded(f.ctx, f)
	defer cancel()
	for n := 1; ; n++ {
		if err := l.lease.Err(); err != nil {
			return l.doubtful(e, err)
		}
		if e.Attempts > 0 || unsure {
			l.o.Stats.retries.Add(1)
		}
		var connected atomic.Bool
		result, err := f.fn(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
			GotConn: func(httptrace.GotConnInfo) { connected.Store(true) }}), e.ID)
		e.Attempts++
		if err == nil {
			return l.settle(e, Decision{State: Done, Result: result}, nil)
		}
		sure, known := errors.AsType[*certain](err)
		known = known && !(sure.unsent && connected.Load())
		unsure = unsure || !known
		e.Reason = clean(err.Error())
		more := n < l.o.Attempts && (known && !sure.final || !known && l.o.Repeatable)
		if more && l.pause(ctx, n) {
			continue
		}
		if !unsure {
			if known && !sure.final && l.stopped() {
				return l.yield(e, err)
			}
			return l.settle(e, Decision{State: Failed, Reason: e.Reason}, err)
		}
		d, failed := l.decide(f, e)
		switch {
		case failed != nil:
			return l.undecided(e, failed)
		case d.State != Repeat:
			return l.settle(e, d, err)
		case n >= l.o.Attempts || !l.pause(ctx, n):
			return l.settle(e, d, err)
		}
	}
}

// The context for fn and Resolve carries ctx's values and the flight.
func (l *Ledger) bounded(ctx context.Context, f *flight) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(context.WithValue(context.WithoutCancel(ctx), flightKey{}, f))
	ctx, timer := context.WithTimeout(ctx, l.o.Deadline)
	stop := context.AfterFunc(l.lease.Context(), func() { cancel(context.Cause(l.lease.Context())) })
	return ctx, func() {
		stop()
		timer()
		cancel(nil)
	}
}

// After attempt n, pause waits and reports whether another attempt may begin.
func (l *Ledger) pause(ctx context.Context, n int) bool {
	wait := l.o.BackoffMax
	if shift := n - 1; shift < 30 && l.o.BackoffMin<<shift < wait {
		wait = l.o.BackoffMin << shift
	}
	wait -= time.Duration(rand.Int64N(int64(wait/2) + 1)) //nolint:gosec // it spreads attempts
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-t.C:
		return ctx.Err() == nil && !l.stopped()
	case <-ctx.Done():
	case <-l.closing:
	}
	return false
}

func (l *Ledger) stopped() bool {
	select {
	case <-l.closing:
		return true
	default:
		return l.lease.Err() != nil
	}
}

// An effect in doubt is decided by Resolve or, if Resolve is not set, according to Repeatable.
func (l *Ledger) decide(f *flight, e Effect) (Decision, error) {
	if l.o.Resolve == nil {
		if l.o.Repeatable {
			return Decision{State: Repeat, Reason: e.Reason}, nil
		}
		return Decision{Reason: e.Reason}, nil
	}
	ctx, cancel := l.bounded(context.Background(), f)
	defer cancel()
	for n := 1; ; n++ {
		if err := l.lease.Err(); err != nil {
			return Decision{}, err
		}
		var d Decision
		err := goexit.Call(func() (err error) { d, err = l.o.Resolve(ctx, e); return err })
		if err == nil {
			switch d.State {
			case Done, Failed, Repeat, InDoubt, "":
				return d, nil
			case Begun: // Begun decides nothing
			}
			err = invalid("Resolve decided %.40q: use Done, Failed, Repeat or InDoubt", d.State)
		}
		if n >= l.o.Attempts || !l.pause(ctx, n) {
			return Decision{}, err
		}
	}
}

// settle writes a decision, or a known outcome, and returns the outcome. See write.
func (l *Ledger) settle(e Effect, d Decision, cause error) outcome {
	e.State, e.Token, e.Reason = d.State, l.lease.Token(), clean(d.Reason)
	if e.State == Repeat {
		e.Repeats++
	}
	switch e.State {
	case Done, Failed:
		e.Ended = now()
		if e.State == Done {
			e.Result = d.Result
		}
		if len(e.Result) > l.o.MaxResult {
			e.Result, e.NotKept = nil, len(d.Result)
		}
	case "":
		e.State = InDoubt
	case Begun, InDoubt, Repeat:
	}
	return l.write(e, d.Result, cause)
}

func record(e Effect) []core.Op {
	value := encode(e)
	if e.State.Open() {
		return []core.Op{core.Put(recordPrefix+e.Key, value), core.Put(openPrefix+e.Key, value)}
	}
	return []core.Op{core.Put(recordPrefix+e.Key, value), core.Delete(openPrefix + e.Key), core.Put(endKey(e), nil)}
}

// If the effect is done, the outcome contains the result. The cause is fn's error. If the write
// fails, the ledger repeats it later.
func (l *Ledger) write(e Effect, result []byte, cause error) outcome {
	_, err := l.w.put("", record(e)...)
	if errors.Is(err, core.ErrTooLarge) && len(e.Result) > 0 { // the server accepts less now
		less := e
		less.Result, less.NotKept = nil, len(e.Result)
		if _, err = l.w.put("", record(less)...); err == nil {
			e = less
		}
	}
	if err != nil {
		l.postpone(e, cause)
		out := l.doubtful(e, err)
		out.result = result
		return out
	}
	if !e.State.Open() {
		l.ended(e, cause)
	}
	switch e.State {
	case Done:
		out := l.answer(e, nil)
		out.result = result
		return out
	case Failed:
		return l.answer(e, cause)
	default:
		return l.doubtful(e, nil)
	}
}

// After yield, the record shows that nothing happened, and the next Do attempts the effect.
func (l *Ledger) yield(e Effect, cause error) outcome {
	e.undone = true
	out := l.settle(e, Decision{State: Repeat, Reason: e.Reason}, cause)
	if out.again {
		out.err = fmt.Errorf("tenure: effect %q: not done before the ledger was closed: %w: %w", e.Key, core.ErrRetry, cause)
	}
	return out
}

func (l *Ledger) answer(e Effect, cause error) outcome {
	switch {
	case e.State == Failed:
		return outcome{err: &FailedError{l.lease.Shard(), e, cause}}
	case e.NotKept > 0:
		return outcome{err: fmt.Errorf("tenure: effect %q of shard %q is done: %w: it had %d bytes",
			e.Key, l.lease.Shard(), ErrNotKept, e.NotKept)}
	}
	return outcome{result: slices.Clone(e.Result)}
}

// The effect stays open. If its state could not be written, failed is the error of that write.
func (l *Ledger) doubtful(e Effect, failed error) outcome {
	l.leave(e)
	if failed != nil {
		e.State, e.Reason = InDoubt, clean(failed.Error())
	}
	err := &InDoubtError{Shard: l.lease.Shard(), Effect: e, lost: errors.Is(failed, core.ErrLost)}
	if e.State == Repeat {
		return outcome{err: err, again: true}
	}
	if !err.lost { // a lost lease is reported once for all effects, when the handler ends
		l.o.logError(err)
	}
	return outcome{err: err}
}

// Resolve has failed, and the ledger calls it again later.
func (l *Ledger) undecided(e Effect, err error) outcome {
	l.mu.Lock()
	l.later[e.Key] = late{}
	l.mu.Unlock()
	reason := clean("Resolve failed: " + err.Error())
	if e.State == InDoubt && e.Token == l.lease.Token() && e.Reason == reason { // already written and reported
		l.leave(e)
		return outcome{err: &InDoubtError{Shard: l.lease.Shard(), Effect: e}}
	}
	return l.settle(e, Decision{Reason: reason}, nil)
}

// postpone records an effect for later. If the outcome is known, the ledger then writes it.
// Otherwise, the ledger decides the effect.
func (l *Ledger) postpone(e Effect, cause error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.later[e.Key] = late{}
	if !e.State.Open() || e.State == Repeat {
		l.later[e.Key] = late{e, cause}
	}
}

func (l *Ledger) takeLater(key string) (what late, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	what, ok = l.later[key]
	delete(l.later, key)
	return what, ok
}

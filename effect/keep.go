package effect

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/core/control"
)

const (
	rulesEvery = time.Second // how often Options.Rules is called
	rulesWait  = 5 * time.Second
	laterEvery = time.Minute // the wait before a failed Resolve, write of an outcome, or trim is repeated
	trimAtOnce = 256         // the number of effects that one read of the index of ends returns
	timeDigits = 12          // digits of the seconds in the index of ends, so that texts sort as numbers
)

func endKey(e Effect) string {
	return fmt.Sprintf("%s%0*d/%s", endPrefix, timeDigits, max(0, e.Ended.Unix()), e.Key)
}

// keep trims effects after Keep, and repeats failed work.
func (l *Ledger) keep() {
	tick := time.NewTicker(rulesEvery)
	defer tick.Stop()
	trim, later := time.Now(), time.Now().Add(laterEvery)
	for {
		if now := time.Now(); !now.Before(trim) {
			next, err := l.trim(now)
			if err != nil {
				l.report(fmt.Errorf("tenure: trim effects: %w", err))
				next = now.Add(laterEvery)
			}
			trim = next
		}
		select {
		case <-tick.C:
		case <-l.closing:
			return
		case <-l.lease.Context().Done():
			return
		}
		l.obey()
		if now := time.Now(); !now.Before(later) {
			later = now.Add(laterEvery)
			if !l.failed.Swap(false) {
				l.o.logEnd()
			}
			l.again()
		}
	}
}

// trim removes the effects that ended more than Keep ago, oldest first, and returns the time of the
// next trim.
func (l *Ledger) trim(at time.Time) (next time.Time, err error) {
	for more := true; more && !l.stopped(); {
		items, err := l.lease.List(l.lease.Context(), endPrefix, trimAtOnce, 1) // the values are empty
		if err != nil {
			return time.Time{}, err
		}
		next, more = at.Add(l.o.Keep), len(items) == trimAtOnce
		var ended []*entry // one entry for each effect, because a leftover item would remove a later effect's record
		for i := range items {
			seconds, key, _ := strings.Cut(strings.TrimPrefix(items[i].Key, endPrefix), "/")
			s, err := strconv.ParseInt(seconds, 10, 64)
			if until := time.Unix(s, 0).Add(l.o.Keep); err == nil && !until.Before(at) {
				// Wait for at most Keep on the monotonic clock, because the stored time may come
				// from a clock that was far ahead.
				next, more = at.Add(min(until.Sub(at)+time.Second, l.o.Keep)), false
				break
			}
			ops := []core.Op{core.Delete(items[i].Key)}
			if err == nil && CheckKey(key) == nil {
				ops = append(ops, core.Delete(recordPrefix+key))
			}
			ended = append(ended, &entry{ops: ops, done: make(chan struct{})})
		}
		l.w.enqueue(ended...)
		for _, e := range ended {
			if <-e.done; e.err != nil {
				return time.Time{}, e.err
			}
		}
	}
	return next, nil
}

// review starts to decide each open effect that is not being attempted.
func (l *Ledger) review(open []Effect) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return
	}
	var flights []*flight
	for i := range open {
		if l.flights[open[i].Key] == nil {
			flights = append(flights, l.newFlight(open[i].Key))
		}
	}
	next := make(chan *flight, len(flights))
	for _, f := range flights {
		next <- f
	}
	close(next)
	for range min(l.o.Concurrent, len(flights)) {
		l.flown.Go(func() {
			for f := range next {
				l.fly(f, false)
			}
		})
	}
}

// again reviews the effects for which Resolve failed or whose outcome could not be written.
func (l *Ledger) again() {
	l.mu.Lock()
	var open []Effect
	for key := range l.later {
		open = append(open, Effect{Key: key})
	}
	l.mu.Unlock()
	l.review(open)
}

func (l *Ledger) obey() {
	obeyed := make(map[string]control.Rule) // the current rules that were examined
	var open []Effect
	for _, r := range l.o.Rules() {
		if !l.mine(&r) {
			continue
		}
		if old, ok := l.obeyed[r.Effect]; !ok || !old.At.Equal(r.At) || !old.Began.Equal(r.Began) || old.Repeats != r.Repeats ||
			old.Outcome != r.Outcome {
			l.mu.Lock()
			busy := l.flights[r.Effect] != nil
			l.mu.Unlock()
			if busy {
				continue // obey examines it again a second later
			}
			open = append(open, Effect{Key: r.Effect})
		}
		obeyed[r.Effect] = r
	}
	l.obeyed = obeyed
	l.review(open)
}

func (l *Ledger) mine(r *control.Rule) bool {
	return r.Kind == control.Resolve && r.Shards == l.lease.Shard() && r.Active(time.Now())
}

// byHand returns the operators' rule that decides an effect in its current state, or nil.
func (l *Ledger) byHand(e Effect) *control.Rule {
	for _, r := range l.o.Rules() {
		if l.mine(&r) && r.Effect == e.Key && r.Began.Equal(e.Began) && r.Repeats == e.Repeats {
			return &r
		}
	}
	return nil
}

func decision(r *control.Rule) Decision {
	d := Decision{Result: []byte(r.Result), Reason: r.Reason}
	switch r.Outcome {
	case control.OutcomeDone:
		d.State = Done
	case control.OutcomeFailed:
		d.State = Failed
	case control.OutcomeRepeat:
		d.State = Repeat
	}
	return d
}

func (l *Ledger) revisit(f *flight) outcome {
	e, err := l.record(l.lease.Context(), f.key)
	switch {
	case err != nil:
		l.report(err)
		return outcome{err: err}
	case e == nil:
		return l.strike(f.key)
	}
	l.mu.Lock()
	_, later := l.later[f.key]
	l.mu.Unlock()
	lapsed := e.State == Begun && e.Token == l.lease.Token() // no call attempts it
	if e.State.Open() && !later && !lapsed && l.o.Resolve == nil && l.byHand(*e) == nil {
		return outcome{again: true} // a person or the next Do decides
	}
	return l.meet(f, *e)
}

// strike removes an effect without a record from the index of open effects.
func (l *Ledger) strike(key string) outcome {
	l.mu.Lock()
	_, listed := l.idle[key]
	l.mu.Unlock()
	if !listed { // the effect that the rule names never existed
		return outcome{again: true}
	}
	if _, err := l.w.put("", core.Delete(openPrefix+key)); err != nil {
		l.postpone(Effect{Key: key}, nil)
		l.report(fmt.Errorf("tenure: effect %q has no record: take it off the list of open effects: %w", key, err))
		return outcome{err: err}
	}
	l.takeLater(key)
	l.take(key)
	l.report(fmt.Errorf("tenure: effect %q of shard %q: %w: it was listed as open, and had no record: it is not listed any more",
		key, l.lease.Shard(), core.ErrDamaged))
	return outcome{again: true}
}

// report logs an error after which the ledger tries again, unless the lease has ended.
func (l *Ledger) report(err error) {
	if l.lease.Err() == nil {
		l.failed.Store(true)
		l.o.logError(err)
	}
}

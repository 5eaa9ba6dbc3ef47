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
	rulesEvery = time.Second // how often Options.Rules is looked at
	laterEvery = time.Minute // how often what failed is tried again: Resolve, an outcome's write, a trim
	trimAtOnce = 256         // effects that one read of the index of ends returns
	timeDigits = 12          // of the seconds in the index of ends: their order is that of their texts
)

// endKey is the key of an effect in the index of ends.
func endKey(e Effect) string {
	return fmt.Sprintf("%s%0*d/%s", endPrefix, timeDigits, max(0, e.Ended.Unix()), e.Key)
}

// keep trims what was kept long enough, and has what failed tried again.
func (l *Ledger) keep() {
	every := laterEvery
	if l.o.Rules != nil {
		every = rulesEvery
	}
	tick := time.NewTicker(min(every, max(l.o.Keep/4, time.Second)))
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
		if l.o.Rules != nil {
			l.obey()
		}
		if now := time.Now(); !now.Before(later) {
			later = now.Add(laterEvery)
			if !l.failed.Swap(false) {
				l.o.Stats.logEnd()
			}
			l.again()
		}
	}
}

// trim removes the effects that ended before Keep, oldest first, and returns when there may be
// more: what ends later is kept longer.
func (l *Ledger) trim(at time.Time) (next time.Time, err error) {
	for more := true; more && !l.stopped(); {
		items, err := l.lease.List(l.lease.Context(), endPrefix, trimAtOnce)
		if err != nil {
			return time.Time{}, err
		}
		next, more = at.Add(l.o.Keep), len(items) == trimAtOnce
		var parts [][]core.Op // each a whole number of effects: an entry that stayed would remove the record of a later one
		for i := range items {
			seconds, key, _ := strings.Cut(strings.TrimPrefix(items[i].Key, endPrefix), "/")
			s, err := strconv.ParseInt(seconds, 10, 64)
			if until := time.Unix(s, 0).Add(l.o.Keep); err == nil && !until.Before(at) {
				next, more = until.Add(time.Second), false
				break
			}
			if last := len(parts) - 1; last < 0 || len(parts[last])+2 > l.w.most {
				parts = append(parts, nil)
			}
			ops := &parts[len(parts)-1]
			if err == nil && CheckKey(key) == nil {
				*ops = append(*ops, core.Delete(recordPrefix+key))
			}
			*ops = append(*ops, core.Delete(items[i].Key))
		}
		for _, part := range parts {
			if _, err := l.w.put("", part...); err != nil {
				return time.Time{}, err
			}
		}
	}
	return next, nil
}

// review has open effects decided that nobody attempts.
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
				l.fly(f)
			}
		})
	}
}

// again has the effects looked at on which Resolve failed, or whose outcome could not be written.
func (l *Ledger) again() {
	l.mu.Lock()
	var open []Effect
	for key := range l.later {
		open = append(open, Effect{Key: key})
	}
	l.mu.Unlock()
	l.review(open)
}

// obey has the effects decided about which there are new rules.
func (l *Ledger) obey() {
	obeyed := make(map[string]control.Rule) // the rules that there are, and that were looked at
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
				continue // a second later
			}
			open = append(open, Effect{Key: r.Effect})
		}
		obeyed[r.Effect] = r
	}
	l.obeyed = obeyed
	l.review(open)
}

// mine reports whether a rule is about an effect of this shard.
func (l *Ledger) mine(r *control.Rule) bool {
	return r.Kind == control.Resolve && r.Shards == l.lease.Shard() && r.Active(time.Now())
}

// byHand returns the rule that decides about an effect as it is; nil if there is none.
func (l *Ledger) byHand(e Effect) *control.Rule {
	if l.o.Rules == nil {
		return nil
	}
	for _, r := range l.o.Rules() {
		if l.mine(&r) && r.Effect == e.Key && r.Began.Equal(e.Began) && r.Repeats == e.Repeats {
			return &r
		}
	}
	return nil
}

// decision is what a rule says.
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

// revisit decides about an effect that was left open.
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
	lapsed := e.State == Begun && e.Token == l.lease.Token() // nobody attempts it
	if e.State.Open() && !later && !lapsed && l.o.Resolve == nil && l.byHand(*e) == nil {
		return outcome{again: true} // a person's, or the next Do's
	}
	return l.meet(f, *e)
}

// strike takes an effect that has no record off the index of open effects, if it is there.
func (l *Ledger) strike(key string) outcome {
	l.mu.Lock()
	_, listed := l.idle[key]
	l.mu.Unlock()
	if !listed { // a rule about an effect that there never was
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

// report tells OnError what is tried again, but for what the end of the lease causes.
func (l *Ledger) report(err error) {
	if l.lease.Err() == nil {
		l.failed.Store(true)
		l.o.OnError(err)
	}
}

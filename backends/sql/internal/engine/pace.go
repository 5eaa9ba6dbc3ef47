package engine

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/tenure-go/tenure/core/driver"
)

const (
	// hintPause is the minimum time between two looks of one poll. Otherwise, a busy writer's hints
	// would also keep readers busy.
	hintPause = 500 * time.Microsecond
	// The time between two looks is the time since the last change divided by quietParts. After 2 s
	// without a change, for example, a reader looks after 100 ms.
	quietParts = 20
	// Readers see a heartbeat with a delay of at most the TTL divided by lateParts.
	lateParts = 20
	// usualTTL is the TTL that readers assume while they know no member's TTL.
	usualTTL = 10 * time.Second
	// lookPatience is how long a look may take before the reader repeats it on another connection.
	// A connection that was silently lost never answers. Each failed look doubles this time.
	lookPatience = 4 * time.Second
	// distrust is how long readers do not rely on hints after a change without a hint. Such a
	// change may come from a process with NoNotify, which sends no hints.
	distrust = time.Minute
)

// pace contains the minimum and the maximum time between two looks.
type pace struct{ fast, idle time.Duration }

func newPace(l driver.Limits) pace { return pace{l.PollPeriod, max(l.PollPeriod, l.IdlePollPeriod)} }

func (p pace) between(d time.Duration) time.Duration { return min(max(d, p.fast), p.idle) }

// For readers without hints, slow is the maximum time between two looks.
func (p pace) slow(ttl time.Duration) time.Duration { return p.between(ttl / lateParts) }

// For readers with hints, net is the time between two looks. Heartbeats trigger looks, so this time
// is longer than the heartbeat interval.
func (p pace) net(ttl time.Duration) time.Duration { return p.between(ttl * 2 / 5) }

// attention decides how often readers of one kind query the store. It is safe for concurrent use.
type attention struct {
	pace
	mu      sync.Mutex
	changed time.Time // the last change, hint, or changing call
	untold  time.Time // the last change without a hint
	stirred chan struct{}
}

// expect makes readers look often for a while, because a change is likely.
func (a *attention) expect() {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	slowed := now.Sub(a.changed) > quietParts*a.fast
	if a.changed = now; slowed && a.stirred != nil {
		close(a.stirred)
		a.stirred = nil
	}
}

// stir returns a channel that is closed when slow readers must look often.
func (a *attention) stir() <-chan struct{} {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.stirred == nil {
		a.stirred = make(chan struct{})
	}
	return a.stirred
}

// For a while, readers poll even if they get hints.
func (a *attention) doubt() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.untold = time.Now()
}

// next returns the time between two looks, given whether hints arrive, the members' shortest TTL,
// and whether a member's heartbeat is late.
func (a *attention) next(hears bool, ttl time.Duration, late bool) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	switch hears = hears && now.Sub(a.untold) > distrust; {
	case hears && late:
		return a.slow(ttl)
	case hears:
		return a.net(ttl)
	case late:
		return a.fast
	}
	return min(max(now.Sub(a.changed)/quietParts, a.fast), a.slow(ttl))
}

// peers contains the members that Observe reported, and the times at which Observe saw their
// heartbeats. It is safe for concurrent use.
type peers struct {
	mu   sync.Mutex
	of   map[driver.SessionID]peer
	beat chan struct{} // closed at a requested heartbeat of this Backend
}

type peer struct {
	ttl     time.Duration
	version driver.Version
	at      time.Time // of the first look that found this version
}

// learn records the members of a view.
func (p *peers) learn(v *driver.View) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if v.Reset || p.of == nil {
		old := p.of
		p.of = make(map[driver.SessionID]peer, len(v.Members))
		for _, m := range v.Members {
			p.of[m.Session] = old[m.Session]
		}
	}
	for _, m := range v.Members {
		known := p.of[m.Session]
		known.ttl = m.TTL
		p.of[m.Session] = known
	}
	for _, id := range v.Gone {
		delete(p.of, id)
	}
}

// The versions are those that a look found for the requested sessions.
func (p *peers) saw(asked []driver.Beat, versions map[driver.SessionID]driver.Version) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	for _, a := range asked {
		known, ok := p.of[a.Session]
		if v := versions[a.Session]; ok && (known.at.IsZero() || v > known.version) {
			known.version, known.at = v, now
			p.of[a.Session] = known
		}
	}
}

// A heartbeat of this Backend's session causes no hint in this process, so the readers here that
// requested the heartbeat are woken. Such readers are rare.
func (p *peers) beats(id driver.SessionID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.beat != nil && !p.of[id].at.IsZero() {
		close(p.beat)
		p.beat = nil
	}
}

// The channel is closed when this Backend sends a requested heartbeat.
func (p *peers) here() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.beat == nil {
		p.beat = make(chan struct{})
	}
	return p.beat
}

// The results are the members' shortest TTL, and whether a requested session has been silent for
// half its TTL. After four TTLs, a silent session no longer counts, because other members have
// dropped it.
func (p *peers) expected(asked []driver.Beat) (ttl time.Duration, late bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, known := range p.of {
		if ttl == 0 || known.ttl < ttl {
			ttl = known.ttl
		}
	}
	if ttl == 0 {
		ttl = usualTTL
	}
	now := time.Now()
	for _, a := range asked {
		known := p.of[a.Session]
		silent := now.Sub(known.at)
		if !known.at.IsZero() && silent > known.ttl/2 && silent < 4*known.ttl {
			return ttl, true
		}
	}
	return ttl, false
}

// lastView is the state at the end of the last Observe. A call that continues from this state waits
// before its first look. A lastView is safe for concurrent use.
type lastView struct {
	mu     sync.Mutex
	cursor driver.Cursor
	beats  map[driver.SessionID]driver.Version
	from   waiting
}

func (l *lastView) set(cursor driver.Cursor, beats map[driver.SessionID]driver.Version, from waiting) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cursor, l.beats, l.from = cursor, maps.Clone(beats), from
}

// goOn returns the state to continue from, unless the query requests something that the last look
// would have reported.
func (l *lastView) goOn(q driver.ObserveQuery) waiting {
	l.mu.Lock()
	defer l.mu.Unlock()
	if q.Since == "" || q.Since != l.cursor {
		return waiting{}
	}
	for _, a := range q.Beats {
		if v, ok := l.beats[a.Session]; !ok || v > a.Version {
			return waiting{}
		}
	}
	from := l.from
	if len(q.Beats) == 0 {
		from.beats, from.here = nil, nil
	}
	return from
}

// waiting describes how long a reader has waited, and for which hints. With the zero value, the
// reader looks immediately.
type waiting struct {
	since                time.Time // start of the last look
	changed, beats, here <-chan struct{}
}

// news is the result of a look.
type news int

const (
	nothing news = iota
	heartbeats
	states
)

// reader is a blocking call.
type reader struct {
	b     *Backend
	of    Readers
	asked []driver.Beat
	*attention
	from waiting
	look func(ctx context.Context) (news, error)
}

// poll looks until there is news. The reader looks after each hint, and otherwise at the pace of
// its kind (O2). Any user may send hints, so each useless hint doubles the pause before the next
// hint counts. After a poll period without a useless hint, the pause is reset.
func (r *reader) poll(ctx context.Context) error {
	hinted := true // changes before the first look prove nothing
	patience := lookPatience
	for pause := hintPause; ; {
		if err := r.b.store.Check(); err != nil {
			return err
		}
		heard := r.b.store.Hears()
		if r.from.since.IsZero() {
			r.from = waiting{since: time.Now(), changed: r.b.store.Changed(r.of)}
			if len(r.asked) > 0 {
				r.from.beats, r.from.here = r.b.store.Changed(Watchers), r.b.peers.here()
			}
			within, cancel := context.WithTimeout(ctx, patience)
			found, err := r.look(within)
			late := within.Err() != nil && ctx.Err() == nil
			cancel()
			if err != nil && late {
				patience, r.from.since = 2*patience, time.Time{}
				continue
			}
			if found == states {
				r.expect()
			}
			if found != nothing && heard && !hinted && err == nil {
				r.doubt()
			}
			if found != nothing || err != nil {
				return r.b.readError(err)
			}
		}
		var err error
		if hinted, err = r.wait(ctx, &pause); err != nil {
			return err
		}
		r.from.since = time.Time{}
	}
}

// wait returns when the next look is due, and reports whether a hint caused that look.
func (r *reader) wait(ctx context.Context, pause *time.Duration) (hinted bool, err error) {
	wait := r.from
	stirred := r.stir()
	ttl, period := r.period()
	at := wait.since.Add(period)
	timer := time.NewTimer(time.Until(at))
	defer timer.Stop()
	sooner := func(t time.Time) {
		if t.Before(at) {
			at = t
			timer.Reset(time.Until(t))
		}
	}
	last := *pause
	*pause = hintPause
	for {
		select {
		case <-ctx.Done():
			return false, fmt.Errorf("tenure: nothing changed: %w", driver.Ended(ctx))
		case <-r.b.closing:
			return false, errClosed
		case <-wait.changed:
			wait.changed, hinted = nil, true
			r.expect()
			if time.Since(wait.since) >= r.fast {
				last = hintPause
			}
			*pause = min(2*last, r.fast)
			sooner(wait.since.Add(last))
		case <-wait.beats:
			wait.beats, hinted = nil, true
			sooner(wait.since.Add(r.slow(ttl)))
		case <-wait.here:
			wait.here, hinted = nil, true
			sooner(wait.since.Add(r.slow(ttl)))
		case <-stirred:
			stirred = r.stir()
			_, period := r.period()
			sooner(wait.since.Add(period))
		case <-timer.C:
			return hinted, nil
		}
	}
}

func (r *reader) period() (ttl, period time.Duration) {
	ttl, late := r.b.peers.expected(r.asked)
	return ttl, r.next(r.b.store.Hears(), ttl, late)
}

package sql

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/tenure-go/tenure/core/driver"
)

const (
	// hintPause is the least time between two looks of one poll, so that a busy
	// writer's hints do not keep its readers busy as well.
	hintPause = 500 * time.Microsecond
	// quietParts is which part of the quiet time behind it a poll waits: a reader of a
	// store that was quiet for 2 s looks after 100 ms.
	quietParts = 20
	// lateParts is by which part of a TTL a heartbeat may be seen late.
	lateParts = 20
	// usualTTL stands for that of the members where none is known.
	usualTTL = 10 * time.Second
	// lookPatience is how long a look may take before it is made again, on another
	// connection: one that was lost in silence answers never. Each in vain doubles it.
	lookPatience = 4 * time.Second
	// distrust is for how long hints are not relied on after a change that came
	// without one, such as by a process that sends none (NoNotify).
	distrust = time.Minute
)

// pace is how often readers look without a hint.
type pace struct{ fast, idle time.Duration }

func newPace(l driver.Limits) pace { return pace{l.PollPeriod, max(l.PollPeriod, l.IdlePollPeriod)} }

// between is d within the bounds.
func (p pace) between(d time.Duration) time.Duration { return min(max(d, p.fast), p.idle) }

// slow is the longest time between two looks of readers that no hint reaches.
func (p pace) slow(ttl time.Duration) time.Duration { return p.between(ttl / lateParts) }

// net is the time between two looks of readers whom hints reach: longer than the
// time between two heartbeats, which lead to a look by themselves.
func (p pace) net(ttl time.Duration) time.Duration { return p.between(ttl * 2 / 5) }

// attention is what readers of one kind expect. Safe for concurrent use.
type attention struct {
	pace
	mu      sync.Mutex
	changed time.Time // the last change, hint or call that changes something
	untold  time.Time // the last change that came without a hint
	stirred chan struct{}
}

// expect has readers look often from now on: something is under way.
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

// stir returns a channel that is closed when readers that look seldom are to look often.
func (a *attention) stir() <-chan struct{} {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.stirred == nil {
		a.stirred = make(chan struct{})
	}
	return a.stirred
}

// doubt has readers poll although hints reach them.
func (a *attention) doubt() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.untold = time.Now()
}

// next is the time between two looks: hears says whether hints come, ttl is the
// shortest of the members, and late says that the heartbeat of one of them is.
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

// peers are the members that Observe reported, and when their heartbeats were seen.
// Safe for concurrent use.
type peers struct {
	mu   sync.Mutex
	of   map[driver.SessionID]peer
	beat chan struct{} // closed at a heartbeat of this Backend that was asked for
}

type peer struct {
	ttl     time.Duration
	version driver.Version
	at      time.Time // of the first look for it that found this version
}

// learn takes in what a view says of the members.
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

// saw takes in the versions of the sessions asked for.
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

// beats says that a session of this Backend sent a heartbeat, which no hint tells of
// here: those of other processes ask for it, and seldom others here.
func (p *peers) beats(id driver.SessionID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.beat != nil && !p.of[id].at.IsZero() {
		close(p.beat)
		p.beat = nil
	}
}

// here returns a channel that is closed at a heartbeat of this Backend that was asked for.
func (p *peers) here() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.beat == nil {
		p.beat = make(chan struct{})
	}
	return p.beat
}

// expected returns the shortest TTL of the members, and whether one of those asked for
// has been silent for half its TTL. After four the others have left it as it is.
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

// lastView is what the last Observe left off with, so that a call that goes on there
// waits at once. Safe for concurrent use.
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

// goOn returns where to go on if the query asks for nothing that the last look would
// have reported.
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

// waiting is since when a reader waits, and for which hints. The zero value is a
// reader that is to look first.
type waiting struct {
	since                time.Time // the last look began
	changed, beats, here <-chan struct{}
}

// news is what a look found.
type news int

const (
	nothing news = iota
	heartbeats
	states
)

// reader is a call that blocks.
type reader struct {
	b     *Backend
	of    Readers
	asked []driver.Beat
	*attention
	from waiting
	look func(ctx context.Context) (news, error)
}

// poll looks until there are news: after each hint, and without any as often as the
// pace of its kind says (O2). Anybody may send hints: each that leads to nothing doubles
// the pause before the next counts, until none came for a poll period.
func (r *reader) poll(ctx context.Context) error {
	hinted := true // what changed before the first look is no evidence
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

// wait waits until the next look is due, and reports whether a hint said so.
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

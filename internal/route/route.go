package route

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"
)

// ErrSilent is the cause that ended a call's context when its server did not answer
// heartbeats while another one did.
var ErrSilent = errors.New("tenure: the server does not answer heartbeats, and another one does")

// ErrMoved is the cause that ended a watch when another server became the current one.
var ErrMoved = errors.New("tenure: another server of the store is used from now on")

// patience is how many times longer than the round trip of an answered heartbeat
// another server must have been silent to be suspect. Below, the order of two
// answers that come late together, such as after an election, would decide.
const patience = 4

// least is how long a server must have been silent at least: a round trip takes one
// millisecond, and a server that collects its garbage ten.
const least = 100 * time.Millisecond

// stale is how many answered heartbeats make a connection that had none of them stale. While
// heartbeats overlap for long, each server has one of every few.
const stale = 6

// Outcome is the evidence that a call gives about its server.
type Outcome uint8

// Outcomes of a call.
const (
	Ended    Outcome = iota // nothing: its caller gave it up
	Answered                // the server decided the call, with any answer
	Failed                  // it was refused, lost, or had no answer by its deadline
)

// Routes chooses among the servers of a store. Safe for concurrent use.
type Routes struct {
	life context.Context

	mu      sync.Mutex
	servers []server
	current int
	events  uint64 // answers and failures so far
	beats   uint64 // answers to heartbeats so far
}

type server struct {
	answered, failed uint64 // the latest, by the count of events
	beats            int    // under way
	beat             uint64 // the latest answer to a heartbeat, by their count
	trips            map[*Trip]struct{}
}

// New returns routes to n servers, of which first is the current one. The end of
// life ends all calls.
func New(life context.Context, n, first int) *Routes {
	r := &Routes{life: life, servers: make([]server, n), current: first}
	for i := range r.servers {
		r.servers[i].trips = make(map[*Trip]struct{})
	}
	return r
}

// Trip is a call under way to one server. Done ends it, once.
type Trip struct {
	Server int
	// Context ends with the caller's, with the life of the routes, and when the
	// server turns out to be silent; then its cause is ErrSilent.
	Context context.Context
	// Stale says of a heartbeat beside one that has no answer that the connection for it was long
	// unused: what lost the other one in silence may have lost it too, so a new one is better. No
	// other heartbeat is under way on it.
	Stale bool

	r      *Routes
	kind   kind
	start  time.Time
	judged bool // a heartbeat by which its server became suspect
	cancel context.CancelCauseFunc
	unbind func() bool
}

type kind uint8

const (
	call kind = iota
	beat
	watch
)

// Beat chooses a server for a heartbeat: the current one if it owes no answer to
// another heartbeat, else one that owes the fewest.
func (r *Routes) Beat(ctx context.Context) *Trip { return r.begin(ctx, beat) }

// Call returns a trip to the current server.
func (r *Routes) Call(ctx context.Context) *Trip { return r.begin(ctx, call) }

// Watch returns a trip to the current server for a call that waits for changes. It
// also ends, with ErrMoved, when another server becomes the current one.
func (r *Routes) Watch(ctx context.Context) *Trip { return r.begin(ctx, watch) }

// Current is the current server.
func (r *Routes) Current() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.current
}

func (r *Routes) begin(ctx context.Context, k kind) *Trip {
	t := &Trip{r: r, kind: k, start: time.Now()}
	t.Context, t.cancel = context.WithCancelCause(ctx)
	t.unbind = context.AfterFunc(r.life, func() { t.cancel(context.Cause(r.life)) })
	r.mu.Lock()
	defer r.mu.Unlock()
	t.Server = r.current
	if s := &r.servers[t.Server]; k == beat {
		if s.beats > 0 {
			t.Server = r.best(-1)
			s = &r.servers[t.Server]
			t.Stale = s.beats == 0 && r.beats-s.beat >= stale
		}
		s.beats++
	}
	r.servers[t.Server].trips[t] = struct{}{}
	return t
}

// best is the server that owes the fewest answers to heartbeats; among those one
// whose latest call did not fail, the one that answered last. Server not is left out
// where there is another one.
func (r *Routes) best(not int) int {
	best := -1
	for n := range r.servers {
		i := (r.current + n) % len(r.servers)
		if i != not && (best < 0 || r.servers[i].compare(&r.servers[best]) < 0) {
			best = i
		}
	}
	return max(best, 0)
}

func (s *server) compare(o *server) int {
	bad, worse := s.failed > s.answered, o.failed > o.answered
	switch {
	case s.beats != o.beats:
		return cmp.Compare(s.beats, o.beats)
	case bad && worse:
		return cmp.Compare(s.failed, o.failed)
	case bad:
		return 1
	case worse:
		return -1
	}
	return cmp.Compare(o.answered, s.answered)
}

// Done ends the trip.
func (t *Trip) Done(o Outcome) {
	r := t.r
	r.mu.Lock()
	defer r.mu.Unlock()
	t.unbind()
	t.cancel(nil)
	s := &r.servers[t.Server]
	delete(s.trips, t)
	if t.kind == beat {
		s.beats--
	}
	switch o {
	case Answered:
		r.events++
		s.answered = r.events
		if t.kind == beat {
			r.beats++
			s.beat = r.beats
			r.suspect(t)
		}
	case Failed:
		r.events++
		s.failed = r.events
		if t.Server == r.current {
			r.move(r.best(t.Server))
		}
	default: // Ended: a call that was not needed says nothing of the server
	}
}

// suspect finds the servers that are silent in comparison with an answered heartbeat.
func (r *Routes) suspect(answered *Trip) {
	now := time.Now()
	took := now.Sub(answered.start)
	for i := range r.servers {
		s, silent := &r.servers[i], false
		for t := range s.trips {
			if t.kind == beat && !t.judged && t.start.Before(answered.start) &&
				now.Sub(t.start) >= max(least, patience*took) {
				t.judged, silent = true, true
			}
		}
		if !silent {
			continue
		}
		for t := range s.trips {
			// Calls that began later on the server that answers now go on.
			if t.kind != beat && (i != answered.Server || t.start.Before(answered.start)) {
				t.cancel(ErrSilent)
			}
		}
		if i == answered.Server {
			continue
		}
		r.events++
		s.failed = r.events
		if i == r.current {
			r.move(answered.Server)
		}
	}
}

// move makes a server the current one, and ends the watches on the former.
func (r *Routes) move(to int) {
	if to == r.current {
		return
	}
	for t := range r.servers[r.current].trips {
		if t.kind == watch {
			t.cancel(ErrMoved)
		}
	}
	r.current = to
}

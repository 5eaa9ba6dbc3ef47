package route

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"
)

// ErrSilent is the cause that ends a call's context if its server does not answer heartbeats
// while another does.
var ErrSilent = errors.New("tenure: the server does not answer heartbeats, and another one does")

// ErrMoved is the cause that ends a watch when another server becomes the current one.
var ErrMoved = errors.New("tenure: another server of the store is used from now on")

// patience is how many times longer than the round trip of an answered heartbeat another server
// must have been silent to be suspect. A smaller factor would judge by the order of two answers
// that are both late, for example after an election.
const patience = 4

// least is the shortest silence of a suspect server. A round trip takes one millisecond, and a
// server that collects garbage ten.
const least = 100 * time.Millisecond

// stale is the number of answered heartbeats after which a connection without any of them is stale.
// While heartbeats overlap for a long time, each server gets one of every few.
const stale = 6

// Outcome is the evidence that a call gives about its server.
type Outcome uint8

// Outcomes of a call.
const (
	Ended    Outcome = iota // nothing: the caller gave up
	Answered                // the server decided the call, with any answer
	Failed                  // refused, lost, or without an answer by the deadline
)

// Routes chooses among the servers of a store. It is safe for concurrent use.
type Routes struct {
	life context.Context

	mu      sync.Mutex
	servers []server
	current int
	events  uint64 // number of answers and failures so far
	beats   uint64 // number of answers to heartbeats so far
}

type server struct {
	answered, failed uint64 // the latest, by the count of events
	beats            int    // heartbeats under way
	beat             uint64 // the latest answer to a heartbeat, by their count
	trips            map[*Trip]struct{}
}

// New returns routes to n servers, with first as the current one. The end of life ends all calls.
func New(life context.Context, n, first int) *Routes {
	r := &Routes{life: life, servers: make([]server, n), current: first}
	for i := range r.servers {
		r.servers[i].trips = make(map[*Trip]struct{})
	}
	return r
}

// Trip is a call under way to one server. Done ends it, and must be called once.
type Trip struct {
	Server int
	// Context ends with the caller's, with the life of the routes, and when the server turns
	// out to be silent. In the last case, the cause is ErrSilent.
	Context context.Context
	// Stale is set for a heartbeat beside an unanswered one if a new connection would be better,
	// because the cause of the silence may have broken the connection too. Either the connection
	// was unused for a long time, or the heartbeats on it have no answer either. In the second
	// case, they are not the oldest unanswered ones, and they end with the connection.
	Stale bool
	// Since is when the oldest unanswered heartbeat was sent, for a heartbeat beside it. If this
	// heartbeat is answered on a connection that was made later, the store was not silent, and
	// other connections from before may be broken too.
	Since time.Time

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

// Beat chooses a server for a heartbeat. It is the current one if that owes no answer to
// another heartbeat, otherwise one that owes the fewest.
func (r *Routes) Beat(ctx context.Context) *Trip { return r.begin(ctx, beat) }

// Call returns a trip to the current server.
func (r *Routes) Call(ctx context.Context) *Trip { return r.begin(ctx, call) }

// Watch returns a trip to the current server for a call that waits for changes. When another server
// becomes the current one, it ends with ErrMoved.
func (r *Routes) Watch(ctx context.Context) *Trip { return r.begin(ctx, watch) }

// Current returns the current server.
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
			t.Since = r.oldest().start
			t.Stale = s.beats == 0 && r.beats-s.beat >= stale || r.mute(s, t.start)
		}
		s.beats++
	}
	r.servers[t.Server].trips[t] = struct{}{}
	return t
}

// mute reports whether a server has kept a heartbeat waiting for a third of its time, although it is
// not the server that has the oldest heartbeat, whose late answer would still count.
func (r *Routes) mute(s *server, now time.Time) bool {
	mine := s.oldest()
	if mine == nil {
		return false
	}
	limit, ok := mine.Context.Deadline()
	if !ok || now.Sub(mine.start) < limit.Sub(mine.start)/3 {
		return false
	}
	return r.oldest().start.Before(mine.start)
}

// oldest returns the heartbeat that has waited for its answer the longest, or nil.
func (r *Routes) oldest() (first *Trip) {
	for i := range r.servers {
		if t := r.servers[i].oldest(); t != nil && (first == nil || t.start.Before(first.start)) {
			first = t
		}
	}
	return first
}

// oldest returns the heartbeat that has waited for its answer the longest, or nil.
func (s *server) oldest() (first *Trip) {
	for t := range s.trips {
		if t.kind == beat && (first == nil || t.start.Before(first.start)) {
			first = t
		}
	}
	return first
}

// best returns the server that owes the fewest answers to heartbeats. Among several, it prefers
// a server whose latest call did not fail, and then the one that answered last. It returns the
// server given as not only if there is no other.
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
	default: // Ended: the call says nothing about the server
	}
}

// suspect finds the servers that are silent compared with an answered heartbeat.
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
			// Later calls on the server that answers now continue.
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

// move makes a server the current one, and ends the watches on the previous one.
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

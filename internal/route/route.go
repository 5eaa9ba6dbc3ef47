package route

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"
)

// ErrSilent is the cause of a call's cancellation if its server does not answer heartbeats but
// another server does.
var ErrSilent = errors.New("tenure: the server does not answer heartbeats, and another one does")

// ErrMoved is the cause of a watch's cancellation when another server becomes the current server.
var ErrMoved = errors.New("tenure: another server of the store is used from now on")

// A server is suspect if it has been silent for patience times the round trip of another server's
// heartbeat. With a smaller factor, two late answers, for example after an election, could make the
// slower server suspect.
const patience = 4

// least is the shortest silence after which a server can be suspect. A round trip takes one
// millisecond, or ten milliseconds if the server is collecting garbage.
const least = 100 * time.Millisecond

// stale is the number of consecutive heartbeats answered by other servers after which a server's
// connection is stale. While heartbeats overlap for a long time, each server gets only one in every
// few heartbeats.
const stale = 6

// Outcome describes what a call shows about its server.
type Outcome uint8

// These constants are the outcomes of a call.
const (
	Ended    Outcome = iota // nothing: the caller gave up
	Answered                // the server decided the call, whatever the answer
	Failed                  // the call was refused, lost, or not answered by the deadline
)

// Routes chooses among the servers of a store. A Routes is safe for concurrent use.
type Routes struct {
	life context.Context

	mu      sync.Mutex
	servers []server
	current int
	events  uint64 // number of answers and failures so far
	beats   uint64 // number of answers to heartbeats so far
}

type server struct {
	answered, failed uint64 // the latest answer and failure, by the count of events
	beats            int    // heartbeats under way
	refused          int    // heartbeats that failed since any server has answered one
	beat             uint64 // the latest answer to a heartbeat, by their count
	trips            map[*Trip]struct{}
}

// New returns routes to n servers, of which first is the current one. All calls end when the
// context ends.
func New(life context.Context, n, first int) *Routes {
	r := &Routes{life: life, servers: make([]server, n), current: first}
	for i := range r.servers {
		r.servers[i].trips = make(map[*Trip]struct{})
	}
	return r
}

// Trip is a call in progress to one server. Done ends the trip, and must be called once.
type Trip struct {
	Server int
	// Context ends with the caller's context, with the context passed to New, or when the server is
	// found to be silent. In the last case, the cause is ErrSilent. For a Watch, it may be ErrMoved.
	Context context.Context
	// Stale is set for a heartbeat that is sent while another is unanswered, if its own connection
	// may also be broken. A new connection is then better. Either the connection was unused for a
	// long time, or heartbeats on it are unanswered. These are not the oldest unanswered
	// heartbeats, and they end with the connection.
	Stale bool
	// Since is set for a heartbeat that is sent while another is unanswered, and is the time at
	// which the oldest unanswered heartbeat was sent. If the later heartbeat is answered on a
	// connection opened after Since, the store was not silent, so connections opened before Since
	// may be broken.
	Since time.Time

	r      *Routes
	kind   kind
	start  time.Time
	judged bool // the server became suspect because of this heartbeat
	cancel context.CancelCauseFunc
	unbind func() bool
}

type kind uint8

const (
	call kind = iota
	beat
	watch
)

// Beat returns a trip for a heartbeat. It chooses the current server if that server has no
// unanswered heartbeats, and otherwise a server with the fewest.
func (r *Routes) Beat(ctx context.Context) *Trip { return r.begin(ctx, beat) }

// Call returns a trip to the current server.
func (r *Routes) Call(ctx context.Context) *Trip { return r.begin(ctx, call) }

// Watch returns a trip to the current server for a call that waits for changes. When another server
// becomes the current server, the trip ends with ErrMoved.
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

// mute reports whether a server has left a heartbeat unanswered for a third of the time allowed for
// it. The server of the oldest heartbeat is never mute, because a late answer to that heartbeat
// would still count.
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

// oldest returns the oldest unanswered heartbeat, or nil.
func (r *Routes) oldest() (first *Trip) {
	for i := range r.servers {
		if t := r.servers[i].oldest(); t != nil && (first == nil || t.start.Before(first.start)) {
			first = t
		}
	}
	return first
}

func (s *server) oldest() (first *Trip) {
	for t := range s.trips {
		if t.kind == beat && (first == nil || t.start.Before(first.start)) {
			first = t
		}
	}
	return first
}

// The result is the server with the fewest heartbeats that are unanswered, or that failed since any
// server answered one. Otherwise, a server that refuses all connections would get every heartbeat
// while the other servers are silent because they elect a leader. Among several such servers, those
// whose latest call did not fail come first, and then the one that answered last. The given server
// is avoided, unless it is the only one.
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
	case s.beats+s.refused != o.beats+o.refused:
		return cmp.Compare(s.beats+s.refused, o.beats+o.refused)
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
			for i := range r.servers {
				r.servers[i].refused = 0
			}
			r.suspect(t)
		}
	case Failed:
		r.events++
		s.failed = r.events
		if t.kind == beat {
			s.refused++
		}
		if t.Server == r.current {
			r.move(r.best(t.Server))
		}
	default: // Ended: the call shows nothing about the server
	}
}

// suspect finds the servers that have been silent for much longer than the round trip of an
// answered heartbeat.
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
			// Calls to the answering server that began after its heartbeat continue.
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

// move makes a server the current server, and ends the watches on the previous server.
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

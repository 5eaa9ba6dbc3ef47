package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/route"
)

const (
	// dialTimeout limits one round, including the start of a session.
	dialTimeout = 5 * time.Second
	// dialHedge is the time after which the connector tries another server. A suspended server
	// accepts connections but starts no session, and servers refuse sessions during a leader
	// election.
	dialHedge = 200 * time.Millisecond
	// The number of waiting attempts may exceed the number of servers by dialHedges. Extra attempts
	// help, because a starting server may forget the first attempt.
	dialHedges = 4
	// dialPause is the minimum time between two rounds in which all servers failed.
	dialPause = 20 * time.Millisecond
)

// connector keeps one link for one kind of call. If the link breaks, or if the routes switch to
// another server, the connector makes a new link. A connector is safe for concurrent use.
type connector struct {
	dial    linker
	lost    func(since time.Time) // called after a link was lost silently
	servers []string
	routes  *route.Routes   // nil with a single server
	life    context.Context // ends with close
	asks    bool            // links ask silent servers

	mu      sync.Mutex
	closed  bool
	current *link
	avoid   string // a server that was silent until a call gave up
	round   *round
	rest    time.Time
	running sync.WaitGroup // rounds and links
}

// round is one attempt to get a link from any server.
type round struct {
	done chan struct{}
	link *link
	err  error
}

func newConnector(life context.Context, servers []string, routes *route.Routes, dial linker) *connector {
	return &connector{life: life, servers: servers, routes: routes, dial: dial}
}

var errShut = errors.New("tenure: zookeeper: the store was closed")

// link returns a live link, and connects if necessary.
func (l *connector) link(ctx context.Context) (*link, error) {
	if err := ctx.Err(); err != nil {
		return nil, notSent(err)
	}
	l.mu.Lock()
	if l.closed || l.life.Err() != nil {
		l.mu.Unlock()
		return nil, errShut
	}
	if l.current != nil && l.current.alive() {
		defer l.mu.Unlock()
		return l.current, nil
	}
	if l.round == nil {
		if l.avoid = ""; l.current != nil && l.current.silent.Load() {
			l.avoid = l.current.server
		}
		l.current = nil
		l.round = &round{done: make(chan struct{})}
		r := l.round
		l.running.Go(func() { l.connect(r) })
	}
	r := l.round
	l.mu.Unlock()
	select {
	case <-r.done:
		return r.link, r.err
	case <-ctx.Done():
		return nil, notSent(ctx.Err())
	case <-l.life.Done():
		return nil, errShut
	}
}

// connect tries each server. Because other calls also wait for the result, connect may outlast the
// call that started it.
func (l *connector) connect(r *round) {
	l.mu.Lock()
	pause := time.Until(l.rest)
	l.mu.Unlock()
	if pause > 0 {
		wait := time.NewTimer(pause)
		defer wait.Stop()
		select {
		case <-wait.C:
		case <-l.life.Done():
		}
	}
	moved := l.moved()
	r.link, r.err = l.first(l.from())
	l.mu.Lock()
	defer l.mu.Unlock()
	l.round = nil
	l.rest = time.Now().Add(dialPause)
	if lk := r.link; lk != nil {
		l.current = lk
		l.running.Go(func() { l.keep(lk, moved) })
	} else if moved != nil {
		moved.Done(route.Ended)
	}
	close(r.done)
}

// The returned trip ends when another server becomes current. If there are no routes, the trip is
// nil.
func (l *connector) moved() *route.Trip {
	if l.routes == nil {
		return nil
	}
	return l.routes.Watch(l.life)
}

// A link is closed when it breaks or when its server is no longer current. Pending calls on the
// link end with an unknown outcome. If the server was silent until a call gave up, the server's
// other links are also closed.
func (l *connector) keep(lk *link, moved *route.Trip) {
	ends := l.life
	if moved != nil {
		ends = moved.Context
	}
	if l.asks {
		asking, stop := context.WithCancel(ends)
		l.running.Go(func() { lk.ask(asking) })
		defer stop()
	}
	select {
	case <-lk.down:
		if since := lk.lost.Load(); since != nil {
			l.lost(*since)
		}
	case <-ends.Done():
		if l.life.Err() == nil {
			lk.cut()
		}
	}
	if moved != nil {
		outcome := route.Ended
		if lk.silent.Load() && lk.server == l.servers[moved.Server] {
			outcome = route.Failed
		}
		moved.Done(outcome)
	}
	lk.close()
}

// doubt ends the link if nothing has been read on it since the given time.
func (l *connector) doubt(since time.Time) {
	l.mu.Lock()
	lk := l.current
	l.mu.Unlock()
	if lk != nil && lk.wire.own.silentSince(since) {
		lk.cut()
	}
}

// renew ends the link, so that the next call gets a new link.
func (l *connector) renew() {
	l.mu.Lock()
	lk := l.current
	l.mu.Unlock()
	if lk != nil {
		lk.cut()
	}
}

// The server to try first is the current one or, if that was silent, the next one.
func (l *connector) from() int {
	if l.routes == nil {
		return 0
	}
	at := l.routes.Current() % len(l.servers)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.servers[at] == l.avoid {
		at++
	}
	return at
}

// The servers are tried one after another, and the first resulting link is returned.
func (l *connector) first(at int) (*link, error) {
	ctx, cancel := context.WithTimeout(l.life, dialTimeout)
	defer cancel()
	type attempt struct {
		link *link
		err  error
	}
	attempts := make(chan attempt)
	won := make(chan struct{})
	defer close(won)
	asked, pending := 0, 0
	ask := func() {
		server := l.servers[(at+asked)%len(l.servers)]
		asked++
		pending++
		l.running.Go(func() {
			lk, err := l.dial(ctx, server)
			if err != nil {
				err = fmt.Errorf("%s: %w", server, err)
			}
			select {
			case attempts <- attempt{lk, err}:
			case <-won:
				if lk != nil {
					lk.close()
				}
			}
		})
	}
	hedge := time.NewTicker(dialHedge)
	defer hedge.Stop()
	var errs []error
	ask()
	for pending > 0 {
		select {
		case a := <-attempts:
			if a.err == nil {
				return a.link, nil
			}
			pending--
			if len(errs) < len(l.servers)+dialHedges {
				errs = append(errs, a.err)
			}
			if asked < len(l.servers) {
				ask()
			}
		case <-hedge.C:
			if pending < len(l.servers)+dialHedges {
				ask()
			}
		}
	}
	return nil, fmt.Errorf("tenure: zookeeper: %w: no server can be reached: %w", driver.ErrRetry, joined(errs...))
}

// After the connector's life has ended, close waits for all goroutines.
func (l *connector) close() {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.running.Wait()
}

func notSent(err error) error {
	return fmt.Errorf("tenure: zookeeper: %w: nothing was sent: %w", driver.ErrRetry, err)
}

// joined is like errors.Join, with the text on one line.
func joined(errs ...error) error {
	var all error
	for _, err := range errs {
		switch {
		case err == nil:
		case all == nil:
			all = err
		default:
			all = fmt.Errorf("%w; %w", all, err)
		}
	}
	return all
}

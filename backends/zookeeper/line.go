package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/tenure-go/tenure/core/driver"
)

const (
	// dialTimeout bounds one round, the beginning of a session included.
	dialTimeout = 5 * time.Second
	// dialHedge is how long one server may take before the next is tried beside it: a
	// server that stands still takes connections, but begins no session.
	dialHedge = 300 * time.Millisecond
	// dialHedges is how many attempts more that makes: a server that is just starting
	// may forget the first.
	dialHedges = 4
	// dialPause is the least time between two rounds of servers that all failed.
	dialPause = 20 * time.Millisecond
)

// line is the way to the store for one kind of call: one link at a time, and the
// next one, to the next server, when it broke. Safe for concurrent use.
type line struct {
	dial    func(ctx context.Context, server string) (*link, error)
	servers []string
	life    context.Context // ends with close

	mu      sync.Mutex
	closed  bool
	current *link
	round   *round
	next    int // of servers
	rest    time.Time
	running sync.WaitGroup // rounds and links
}

// round is one attempt to have a link, at each server.
type round struct {
	done chan struct{}
	link *link
	err  error
}

func newLine(life context.Context, servers []string, first int, dial func(context.Context, string) (*link, error)) *line {
	return &line{life: life, servers: servers, next: first, dial: dial}
}

var errShut = errors.New("tenure: zookeeper: the store was closed")

// link returns a live link, and connects where there is none.
func (l *line) link(ctx context.Context) (*link, error) {
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

// connect tries each server. It is not bound to the call that asked for it:
// others wait for it as well.
func (l *line) connect(r *round) {
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
	r.link, r.err = l.first()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.round = nil
	l.rest = time.Now().Add(dialPause)
	if lk := r.link; lk != nil {
		l.current = lk
		l.running.Go(func() {
			select {
			case <-lk.down:
			case <-l.life.Done():
			}
			lk.close()
		})
	}
	close(r.done)
}

// first returns the first link that any server gives.
func (l *line) first() (*link, error) {
	ctx, cancel := context.WithTimeout(l.life, dialTimeout)
	defer cancel()
	type attempt struct {
		link *link
		err  error
	}
	attempts := make(chan attempt)
	won := make(chan struct{})
	defer close(won)
	ask := func() {
		l.mu.Lock()
		server := l.servers[l.next%len(l.servers)]
		l.next++
		l.mu.Unlock()
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
	for asked, pending := 1, 1; pending > 0; {
		more := len(l.servers)
		select {
		case a := <-attempts:
			if a.err == nil {
				return a.link, nil
			}
			pending--
			errs = append(errs, a.err)
		case <-hedge.C:
			more += dialHedges
		}
		if asked < more {
			asked++
			pending++
			ask()
		}
	}
	return nil, fmt.Errorf("tenure: zookeeper: %w: no server can be reached: %w", driver.ErrRetry, joined(errs...))
}

// close joins everything, once the life of the line is over.
func (l *line) close() {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.running.Wait()
}

// notSent is a call that ended before anything of it was sent.
func notSent(err error) error {
	return fmt.Errorf("tenure: zookeeper: %w: nothing was sent: %w", driver.ErrRetry, err)
}

// joined is errors.Join in one line.
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

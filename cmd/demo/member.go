//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/tenure-go/tenure/core"
)

// A member is one of the processes that share the airports.
type member struct {
	config  memberConfig
	flights *timetable
	out     *lineWriter
	gate    *gate
	elector *core.Elector
	clear   *clearance
}

const (
	quitLimit = 5 * time.Second        // for handing back when the director is gone
	lookAgain = 250 * time.Millisecond // between two looks at who should own what, if nothing changes
)

// runMember is the main function of a child process. The end of in ends it.
func runMember(in io.Reader, out io.Writer) int {
	lines := newLineReader(in)
	m := &member{out: &lineWriter{w: out}, clear: newClearance()}
	if err := lines.read(&m.config); err != nil {
		m.tell(event{Is: isFailed, Cause: "no configuration: " + err.Error()})
		return exitInput
	}
	if err := m.run(lines); err != nil {
		m.tell(event{Is: isFailed, Cause: err.Error()})
		return exitDamage
	}
	return exitOK
}

// tell sends an event to the director. Without a director there is nobody to
// tell, and the end of the input ends this process.
func (m *member) tell(e event) {
	e.At = monotonic()
	_ = m.out.write(e)
}

// trouble tells the director what goes wrong between this member and the store.
func (m *member) trouble(e core.SessionEvent) {
	if e.Err != nil {
		m.tell(event{Is: isTrouble, Cause: fmt.Sprintf("%s: %v", e.Kind, e.Err)})
	}
}

func (m *member) run(lines *lineReader) error {
	var err error
	if m.flights, err = openTimetable(m.config.Flights); err != nil {
		return err
	}
	s, ok := storeNamed(stores(), m.config.Backend)
	if !ok {
		return fmt.Errorf("unknown backend %q", m.config.Backend)
	}
	opening, cancel := context.WithTimeout(context.Background(), s.limit)
	b, err := s.open(opening, m.config.DSN, m.config.Namespace, false)
	cancel()
	if err != nil {
		return err
	}
	defer b.Close()
	if m.config.Unfenced {
		m.gate = newGate(unfenced{b}, m.tell)
	} else {
		m.gate = newGate(b, m.tell)
	}
	m.elector, err = core.NewElector(m.gate, &core.Options{
		Node: m.config.Node, TTL: m.config.TTL, Supersede: true, Hooks: core.Hooks{OnSession: m.trouble},
	})
	if err != nil {
		return err
	}

	running, stop := context.WithCancel(context.Background())
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- m.elector.Run(running) }()
	var sharing sync.WaitGroup
	sharing.Go(func() { m.share(running) })
	defer sharing.Wait()
	defer stop()

	orders := make(chan order)
	go func() { // ends with the process: nothing can interrupt a read of standard input
		defer close(orders)
		for {
			var o order
			if lines.read(&o) != nil {
				return
			}
			orders <- o
		}
	}()
	m.tell(event{Is: isUp})
	for {
		select {
		case err := <-ended:
			return cmpErr(err, errors.New("the elector ended by itself"))
		case o, ok := <-orders:
			if !ok {
				stop()
				m.gate.release()
				return waitErr(ended, quitLimit)
			}
			switch o.Do {
			case doRelease:
				m.clear.raise(o.Upto)
			case doHold:
				m.gate.hold(o.Airport)
			case doSend:
				m.gate.release()
			case doLeave:
				stop()
				err := <-ended // within the drain budget
				if err == nil {
					m.tell(event{Is: isLeft})
				}
				return err
			}
		}
	}
}

func cmpErr(err, otherwise error) error {
	if err != nil {
		return err
	}
	return otherwise
}

func waitErr(c <-chan error, limit time.Duration) error {
	select {
	case err := <-c:
		return err
	case <-time.After(limit):
		return fmt.Errorf("not handed back within %v", limit)
	}
}

// share keeps this member contending for exactly the airports that are its own
// by rendezvous among the members alive, and hands over the others. It acts when
// the membership changes, and ends with ctx.
func (m *member) share(ctx context.Context) {
	var moves sync.WaitGroup
	defer moves.Wait()
	s := &sharing{node: m.config.Node, airports: m.flights.airports, mine: map[string]bool{}, moving: map[string]bool{}}
	// Members start together: do not take everything because one was faster.
	grace := time.Now().Add(2 * m.config.TTL)
	v := m.elector.View()
	for ctx.Err() == nil {
		var peers []string
		if time.Now().Before(grace) {
			peers = m.config.Peers
		}
		take, give := s.plan(v.Members, peers)
		if len(take) > 0 && m.elector.Contend(m.work, take...) == nil {
			s.took(take) // else the elector is stopping
		}
		for to, airports := range give {
			s.giving(airports)
			moves.Go(func() {
				// Whatever the error, the airports are no longer contended for here.
				_ = m.elector.HandOver(ctx, to, airports...)
				s.gave(airports)
			})
		}
		wait, cancel := context.WithTimeout(ctx, lookAgain)
		if next, err := m.elector.WaitView(wait, v); err == nil {
			v = next
		} else if wait.Err() == nil {
			cancel()
			return // the elector has stopped
		}
		cancel()
	}
}

// sharing is what this member contends for. Safe for concurrent use.
type sharing struct {
	node     string
	airports []string

	mu     sync.Mutex
	mine   map[string]bool // contended for
	moving map[string]bool // being handed over
}

// plan says which airports to contend for, and which to hand over to whom.
func (s *sharing) plan(members []core.Member, peers []string) (take []string, give map[core.SessionID][]string) {
	live := append([]string{s.node}, peers...)
	session := map[string]core.SessionID{}
	for _, other := range members {
		live = append(live, other.Node)
		if _, twice := session[other.Node]; twice {
			return nil, nil // a former process of that name is about to be gone
		}
		session[other.Node] = other.Session
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	give = map[core.SessionID][]string{}
	for _, a := range s.airports {
		owner := ownerOf(a, live)
		switch to, known := session[owner]; {
		case s.moving[a]:
		case owner == s.node && !s.mine[a]:
			take = append(take, a)
		case owner != s.node && s.mine[a] && known:
			give[to] = append(give[to], a)
		}
	}
	return take, give
}

func (s *sharing) took(airports []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range airports {
		s.mine[a] = true
	}
}

func (s *sharing) giving(airports []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range airports {
		s.moving[a] = true
	}
}

func (s *sharing) gave(airports []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range airports {
		delete(s.moving, a)
		delete(s.mine, a)
	}
}

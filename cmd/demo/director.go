//go:build unix

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"slices"
	"time"

	"github.com/tenure-go/tenure/internal/proof/servers"
)

const (
	tick      = 100 * time.Millisecond // time between two clearances
	stepLimit = 30 * time.Second       // time for one step, in addition to a few TTLs
	stepTTLs  = 10
	endLimit  = 30 * time.Second // time for the members to leave at the end, in addition to a few TTLs
)

// A director starts the members, clears departures, injects faults, and keeps the history. Only one
// goroutine may use a director.
type director struct {
	o        *options
	server   *server // the server that this run started and may restart, or nil
	flights  *timetable
	schedule schedule
	progress io.Writer
	config   memberConfig
	web      *web // nil without -board

	reports  chan childReport
	quit     chan struct{}
	members  []*node
	children []*child // all children that were ever started
	dir      string   // folder of the files in which the children record their calls
	calls    []string // names of these files
	history  *history
	began    time.Time
	cleared  int // number of cleared departures
	limit    int // number of departures that may be cleared in the current step
	cities   map[string]string
	trouble  string  // the last failure of communication between a member and the store
	shown    int     // the percentage of progress that was last printed
	held     []write // the writes that wait at the stopped member's gate
}

const (
	statusStarting = "starting"
	statusRunning  = "running"
	statusKilled   = "killed"
	statusStopped  = "stopped (SIGSTOP)"
	statusDraining = "draining"
	statusDrained  = "drained"
	statusLeaving  = "leaving"
	statusLeft     = "left"
	statusGone     = "gone"
)

// A node is a labeled member and its current process.
type node struct {
	label  string
	child  *child
	status string
}

// direct runs the whole demonstration and returns when no child is left. An error means that the
// demonstration could not continue.
func (d *director) direct(ctx context.Context) (err error) {
	defer func() { err = errors.Join(err, d.end()) }()
	d.began = time.Now()
	if d.server != nil {
		d.say("the logs are in %s", d.server.place)
	}
	if d.web != nil {
		d.say("the board is at %s", d.web.url)
	}
	d.say("%s at %d airports, shared by %s", count(d.flights.total, "departure"), len(d.flights.airports),
		count(len(d.members), "process"))
	for _, s := range d.members {
		if err := d.start(s); err != nil {
			return err
		}
	}
	if err := d.await(ctx, "every airport to have an owner", d.settled); err != nil {
		return err
	}
	d.say("all airports are owned: %s", d.shares())

	type step struct {
		at  int
		run func(context.Context) error
	}
	steps := []step{
		{d.schedule.killAt, d.killAndRestart}, {d.schedule.joinAt, d.join}, {d.schedule.stopAt, d.stopInMidWrite},
		{d.schedule.drainAt, d.drain}, {d.schedule.leaveAt, d.leave},
	}
	if d.server != nil {
		steps = slices.Insert(steps, 3, step{d.schedule.restartAt, d.restartServer})
	}
	for i, step := range steps {
		d.limit = step.at
		if err := d.await(ctx, "the departures before the next step",
			func() bool { return d.history.decided >= d.limit }); err != nil {
			return err
		}
		d.limit = d.flights.total
		if i+1 < len(steps) {
			d.limit = steps[i+1].at
		}
		if err := step.run(ctx); err != nil {
			return err
		}
	}
	if err := d.await(ctx, "the last departures",
		func() bool { return d.history.decided >= d.flights.total }); err != nil {
		return err
	}
	if d.o.stay {
		d.say("all has departed; the members stay until the run is interrupted")
		return d.awaitFor(ctx, math.MaxInt64, "the interrupt", func() bool { return false })
	}
	return d.closeDown(ctx)
}

func (d *director) start(s *node) error {
	c := d.config
	c.Node, c.Process = s.label, fmt.Sprintf("%s.%d", s.label, len(d.children)+1)
	c.Calls = filepath.Join(d.dir, c.Process)
	child, err := startChild(c, d.reports, d.quit)
	if err != nil {
		return err
	}
	d.children, d.calls = append(d.children, child), append(d.calls, c.Calls)
	s.child, s.status = child, statusStarting
	return child.Order(order{Do: doRelease, Upto: d.cleared})
}

// killAndRestart kills a member, waits for the others to take over, and restarts the killed member.
func (d *director) killAndRestart(ctx context.Context) error {
	s := d.node(d.schedule.kill)
	s.status = statusKilled
	w := d.watchMoves(s.label + " killed")
	owned := d.history.owned(s.label)
	d.history.addFault(s.label, sigKill, monotonic())
	if err := s.child.SendKill(); err != nil {
		return err
	}
	d.say("%s killed with SIGKILL; it owned %s", s.label, count(len(owned), "airport"))
	if err := d.await(ctx, "the takeover of the killed member's airports", d.settled); err != nil {
		return err
	}
	d.sayTakeovers(s.label, w.before)
	d.moved(w)
	if err := d.start(s); err != nil {
		return err
	}
	w = d.watchMoves(s.label + " restarted")
	d.say("%s restarted as process %d", s.label, s.child.PID())
	if err := d.await(ctx, "the restarted member to have its share", d.settled); err != nil {
		return err
	}
	d.sayHandOvers(w.before)
	d.moved(w)
	return nil
}

// stopInMidWrite stops a member after core has checked one of its writes, but before the write is
// sent. stopInMidWrite resumes the member after another member has taken over and written. The late
// write is a zombie write.
func (d *director) stopInMidWrite(ctx context.Context) error {
	s := d.node(d.schedule.stop)
	airport, err := d.holdWrite(ctx, s)
	if err != nil {
		return err
	}
	s.status = statusStopped
	moves := d.watchMoves(s.label + " stopped")
	if err := s.child.Stop(); err != nil {
		return err
	}
	stopped := time.Now()
	d.history.addFault(s.label, sigStop, monotonic())
	w := d.held[slices.IndexFunc(d.held, func(w write) bool { return w.Airport == airport })]
	d.say("%s stopped with SIGSTOP between check and send of %s #%d (token %d)", s.label, d.place(airport),
		w.Count, w.Token)
	over := func() bool {
		l := d.history.newest(airport)
		return d.settled() && l.token > w.Token && d.history.counts[airport] >= w.Count &&
			time.Since(stopped) > d.o.ttl*3/2
	}
	if err := d.await(ctx, "the takeover of the stopped member's airports", over); err != nil {
		return err
	}
	for _, p := range d.history.passages()[moves.before:] {
		if p.airport == airport {
			d.say("%s taken over by %s with token %d after %.2f TTL", airport, p.to.member, p.to.token,
				d.ttls(p.took))
		}
	}
	d.sayTakeovers(s.label, moves.before)
	d.moved(moves)

	zombies := len(d.history.zombies)
	if err := s.child.Order(order{Do: doRelease, Upto: d.cleared}); err != nil {
		return err
	}
	if err := s.child.Order(order{Do: doSend}); err != nil {
		return err
	}
	if err := s.child.Continue(); err != nil {
		return err
	}
	s.status = statusRunning
	moves = d.watchMoves(s.label + " resumed")
	d.say("%s resumed after %.2f TTL; it still believes in its leases and sends its write", s.label,
		d.ttls(time.Since(stopped)))
	if err := d.await(ctx, "the answer to the zombie's write",
		func() bool { return len(d.history.zombies) > zombies }); err != nil {
		return err
	}
	if err := d.await(ctx, "the resumed member to have its share", d.settled); err != nil {
		return err
	}
	if n := len(d.history.zombies) - zombies - len(d.held); n > 0 {
		d.say("%s of %s had waited behind it: %d of %d refused", count(n, "more write"), s.label, d.refused(),
			len(d.history.zombies))
	}
	d.sayHandOvers(moves.before)
	d.moved(moves)
	return nil
}

// isHeld reports whether w is among the writes that the gate last held.
func (d *director) isHeld(w write) bool {
	return slices.ContainsFunc(d.held, func(h write) bool {
		return h.Airport == w.Airport && h.Token == w.Token && h.Count == w.Count
	})
}

func (d *director) refused() int {
	n := 0
	for _, w := range d.history.zombies {
		if w.Outcome == wasRefused {
			n++
		}
	}
	return n
}

// holdWrite makes a member's gate hold the next write of a busy airport.
func (d *director) holdWrite(ctx context.Context, s *node) (string, error) {
	d.held = nil
	owned := d.history.owned(s.label)
	slices.SortStableFunc(owned, func(a, b string) int { return d.waiting(b) - d.waiting(a) })
	if len(owned) == 0 || d.waiting(owned[0]) == 0 {
		return "", fmt.Errorf("demo: %s owns no airport with departures to come: use a longer flights file, or "+
			"another -seed", s.label)
	}
	busy := owned[:min(3, len(owned))]
	airport := busy[d.schedule.stopPick%uint64(len(busy))]
	if d.waiting(airport) == 0 {
		airport = busy[0]
	}
	if err := s.child.Order(order{Do: doHold, Airport: airport}); err != nil {
		return "", err
	}
	if err := d.await(ctx, "a write of "+airport+" to stop", func() bool { return d.held != nil }); err != nil {
		return "", err
	}
	return airport, nil
}

// The count includes the airport's departures that are left to clear in the current step.
func (d *director) waiting(airport string) int {
	n := 0
	for _, dep := range d.flights.from[airport] {
		if dep.pos >= d.cleared && dep.pos < d.limit {
			n++
		}
	}
	return n
}

// restartServer kills and restarts the server, and waits until the members have decided every
// departure cleared during the outage.
func (d *director) restartServer(ctx context.Context) error {
	granted := d.history.granted
	killed := time.Now()
	if err := d.server.Kill(ctx); errors.Is(err, servers.ErrUnsupported) {
		return nil // the environment named the server, so the run must not kill it
	} else if err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	d.say("%s killed with SIGKILL", d.server.victim)
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	up := make(chan error, 1)
	go func() { up <- d.server.Restart(ctx) }()
	var restarted bool
	var failed error
	err := d.await(ctx, "the server to come back", func() bool {
		select {
		case failed = <-up:
			restarted = true
		default:
		}
		return restarted
	})
	if !restarted {
		cancel()
		<-up
		return err
	} else if failed != nil {
		return fmt.Errorf("demo: %w", failed)
	}
	d.history.serverAway = append(d.history.serverAway, time.Since(killed))
	d.say("%s runs again after %.2f s", d.server.victim, time.Since(killed).Seconds())
	due := d.cleared
	if err := d.await(ctx, "the work to go on",
		func() bool { return d.settled() && d.history.decided >= due }); err != nil {
		return err
	}
	d.say("the departures of the outage are decided %.2f s after the kill, with %s",
		time.Since(killed).Seconds(),
		count(d.history.granted-granted, "new lease"))
	return nil
}

// After end returns, the director has no children or goroutines.
func (d *director) end() error {
	close(d.quit)
	var errs []error
	for _, c := range d.children {
		errs = append(errs, c.end())
	}
	return errors.Join(errs...)
}

// await handles the members' events, clears departures, and shows progress until done returns true.
// The time limit grows with the TTL and the duration.
func (d *director) await(ctx context.Context, what string, done func() bool) error {
	return d.awaitFor(ctx, stepLimit+stepTTLs*d.o.ttl+d.o.duration, what, done)
}

func (d *director) awaitFor(ctx context.Context, limit time.Duration, what string, done func() bool) error {
	late := time.NewTimer(limit)
	defer late.Stop()
	ticks := time.NewTicker(tick)
	defer ticks.Stop()
	last := time.Now()
	for !done() {
		select {
		case r := <-d.reports:
			if err := d.hear(r); err != nil {
				return err
			}
		case now := <-ticks.C:
			if err := d.clearSome(now.Sub(last)); err != nil {
				return err
			}
			last = now
			d.showProgress()
		case <-ctx.Done():
			return fmt.Errorf("demo: stopped while waiting for %s: %w", what, context.Cause(ctx))
		case <-late.C:
			missing := cmp.Or(d.unsettled(), "all airports are owned, in even shares")
			if d.trouble != "" {
				return fmt.Errorf("demo: waited %v for %s (%s): mend the last failure: %s", limit, what, missing,
					d.trouble)
			}
			return fmt.Errorf("demo: waited %v for %s (%s): the machine may be too busy; use a longer -ttl, or -v to "+
				"see more", limit, what, missing)
		}
	}
	return nil
}

// clearSome clears the departures that became due in the elapsed time, up to the current step's
// limit.
func (d *director) clearSome(passed time.Duration) error {
	n := int(int64(d.flights.total) * int64(passed) / int64(d.o.duration))
	upto := min(d.cleared+max(n, 1), d.limit)
	if upto <= d.cleared {
		return nil
	}
	d.cleared = upto
	for _, s := range d.members {
		if s.status == statusRunning || s.status == statusStarting {
			if err := s.child.Order(order{Do: doRelease, Upto: upto}); err != nil {
				return err
			}
		}
	}
	return nil
}

func (d *director) hear(r childReport) error {
	i := slices.IndexFunc(d.members, func(s *node) bool { return s.child == r.from })
	if i < 0 {
		return nil // the event is from a process that was replaced
	}
	s := d.members[i]
	if r.ended {
		return d.heardEnd(s, r.err)
	}
	e := r.event
	d.history.apply(s.label, e)
	d.web.hear(s.label, e)
	switch e.Is {
	case isUp:
		s.status = statusRunning
	case isEmptied:
		if s.status == statusDraining {
			s.status = statusDrained
		}
	case isPlanned:
		d.detail("%s planned: %s (%s)", s.label, count(e.Count, "move"), e.Cause)
	case isHeld:
		d.held = e.Writes
	case isAnswered:
		for _, w := range e.Writes {
			if d.isHeld(w) || w.Outcome != wasRefused {
				d.sayZombie(s.label, w)
			}
		}
	case isTrouble:
		d.trouble = s.label + ": " + e.Cause
		d.detail("%s", d.trouble)
	case isFailed:
		return fmt.Errorf("demo: %s: %s", s.label, e.Cause)
	case isGranted:
		d.detail("%s owns %s with token %d", s.label, e.Airport, e.Token)
	case isEnded:
		d.detail("%s's lease of %s with token %d ended: %s", s.label, e.Airport, e.Token, e.Cause)
	}
	return nil
}

func (d *director) heardEnd(s *node, err error) error {
	switch {
	case s.status == statusKilled:
		return nil
	case s.status == statusLeaving && err == nil:
		s.status = statusLeft
		return nil
	}
	s.status = statusGone
	if err == nil {
		return fmt.Errorf("demo: %s ended by itself", s.label)
	}
	return fmt.Errorf("demo: %s: %w", s.label, err)
}

func (d *director) node(label string) *node {
	return d.members[slices.IndexFunc(d.members, func(s *node) bool { return s.label == label })]
}

func (d *director) ttls(t time.Duration) float64 { return float64(t) / float64(d.o.ttl) }

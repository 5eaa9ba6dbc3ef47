//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/follower"
	"github.com/tenure-go/tenure/internal/proof/harness"
	calls "github.com/tenure-go/tenure/internal/proof/history"
	"github.com/tenure-go/tenure/internal/proof/intercept"
	"github.com/tenure-go/tenure/internal/proof/loglines"
	"github.com/tenure-go/tenure/observe/tenureprom"
	"github.com/tenure-go/tenure/sharding"
)

// A member is one of the processes that share the airports. The member serves its share with an
// Elector and a sharding.Manager, and shows all airports with a follower.Tailer.
type member struct {
	config  memberConfig
	flights *timetable
	out     *harness.Writer
	rec     *calls.Recorder
	gate    *harness.Gate
	elector *core.Elector
	manager *sharding.Manager
	board   *board
	tailer  *follower.Tailer
	metrics *tenureprom.Metrics
	clear   *clearance
}

const (
	leaveBudget    = 10 * time.Second // time until all airports have new owners, plus a TTL
	quitLimit      = 5 * time.Second  // time for each part of a member to end when the director is gone
	planningParts  = 10               // maximum number of plans in a TTL
	successorParts = 20               // the second successor waits TTL/successorParts for the first
)

// runMember is the main function of a child process, and returns at the end of its input.
func runMember(in io.Reader, out io.Writer) int {
	lines := harness.NewReader(in)
	m := &member{out: harness.NewWriter(out), clear: newClearance()}
	if err := lines.Read(&m.config); err != nil {
		m.report(event{Is: isFailed, Cause: "no configuration: " + err.Error()})
		return exitInput
	}
	if err := m.run(lines); err != nil {
		m.report(event{Is: isFailed, Cause: err.Error()})
		return exitDamage
	}
	return exitOK
}

// Write errors are ignored, because this process ends when the director does.
func (m *member) report(e event) {
	e.At = monotonic()
	_ = m.out.Write(e)
}

func (m *member) trouble(what string, err error) {
	if err != nil {
		m.report(event{Is: isTrouble, Cause: fmt.Sprintf("%s: %v", what, err)})
	}
}

func (m *member) assemble(b core.Backend) (err error) {
	if m.config.Unfenced {
		b = harness.Unfenced(b)
	}
	m.gate = newGate(m.report)
	store := calls.Wrap(intercept.Wrap(b, m.gate.Around), m.rec)
	m.elector, err = core.NewElector(store, &core.Options{
		Node: m.config.Node, TTL: m.config.TTL, Supersede: true,
		LockDir:  "none", // each member represents a machine
		TraceDir: filepath.Dir(m.config.Calls),
		// The members share the processors of one machine, so a successor may be late. With a
		// shorter delay, another member could take an airport first, and the airport would move
		// twice.
		RankDelay: max(m.config.TTL/successorParts, b.Info().Limits.PollPeriod*3/2),
		Logger:    slog.New(slog.DiscardHandler), // the screen shows the reports of the hooks
		Hooks: core.JoinHooks(m.metrics.Hooks(), core.Hooks{
			OnEvent: func(e core.Event) {
				if e.Fence.Shard == "" && e.Kind != core.RecordDamaged { // an event of the session
					m.trouble(string(e.Kind), e.Err)
				}
			},
			OnCall: m.called,
		}),
	})
	if err != nil {
		return err
	}
	m.metrics.Watch(m.elector)
	m.manager, err = sharding.NewManager(store, m.elector, m.work, &sharding.Options{
		Shards: m.flights.airports, Interval: m.config.TTL / planningParts, LeaveBudget: leaveBudget + m.config.TTL,
		OnPlan: m.planned,
		Logger: loglines.Failures("tenure: sharding: trying", func(err error) { m.trouble("plans", err) }),
	})
	if err != nil {
		return err
	}
	m.board = newBoard(monotonic())
	m.tailer, err = follower.NewTailer(store, &follower.Options{
		BackoffMax: m.config.TTL,
		OnEvent: func(e follower.Event) {
			m.metrics.FollowerEvent(e)
			if e.Kind == follower.Failed {
				m.trouble("board", e.Err)
			}
		},
	})
	if err != nil {
		return err
	}
	m.metrics.Follow(m.tailer)
	return m.tailer.Follow("board", follower.Memory(m.board.apply, nil), "*")
}

func (m *member) planned(o *sharding.Outcome) {
	m.metrics.Planned(o)
	if len(o.Moves) == 0 {
		return // the members have changed, but nothing moves
	}
	by := map[string]int{}
	for _, move := range o.Moves {
		by[move.Why.String()]++
	}
	m.report(event{Is: isPlanned, Count: len(o.Moves), Cause: reasons(by)})
}

func (m *member) called(c core.Call) {
	if m.config.Measured && c.Kind == "beat" && c.Err == nil {
		m.report(event{Is: isBeat})
	}
}

func (m *member) run(lines *harness.Reader) (err error) {
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
	defer func() { err = errors.Join(err, b.Close()) }()
	if m.rec, err = calls.Create(m.config.Calls, m.config.Process); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.rec.Close()) }()
	m.metrics = tenureprom.New(&tenureprom.Options{Labels: prometheus.Labels{"member": m.config.Node}})
	if err := m.assemble(b); err != nil {
		return err
	}
	if m.config.Measured {
		defer m.startMeasuring()()
	}
	// The manager ends before the elector, because the elector performs the manager's requests.
	ended := make(chan *part, 3)
	parts := []*part{
		startPart("the manager", m.manager.Run, ended), startPart("the elector", m.elector.Run, ended),
		startPart("the tailer", m.tailer.Run, ended),
	}

	orders := harness.All[order](lines)
	m.report(event{Is: isUp})
	for {
		select {
		case p := <-ended:
			for _, other := range parts {
				other.stop()
			}
			return fmt.Errorf("%s ended by itself: %w", p.name, cmpErr(p.err, errors.New("without an error")))
		case o, ok := <-orders:
			if !ok {
				m.gate.Send()
				return endParts(parts, quitLimit)
			}
			switch o.Do {
			case doRelease:
				m.clear.raise(o.Upto)
			case doHold:
				m.gate.Hold(core.ShardID(o.Airport), harness.BeforeSend)
			case doSend:
				m.gate.Send()
			case doDrain:
				m.manager.Drain(true)
				emptied := m.manager.Emptied()
				go func() { // this goroutine ends with the process at the latest
					<-emptied
					m.report(event{Is: isEmptied})
				}()
			case doShow:
				go m.show() // this goroutine ends with the process at the latest
			case doLeave:
				err := endParts(parts, leaveBudget+m.config.TTL+quitLimit)
				if err == nil {
					m.report(event{Is: isLeft})
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

// The director receives the board once it contains every departure in the file.
func (m *member) show() {
	ctx, cancel := context.WithTimeout(context.Background(), readLimit)
	defer cancel()
	for _, a := range m.flights.airports {
		if err := m.tailer.WaitFor(ctx, a, core.Seq(len(m.flights.from[a]))); err != nil {
			m.trouble("board", err)
			break
		}
	}
	m.report(m.board.shown())
}

type part struct {
	name string
	stop context.CancelFunc
	done chan struct{}
	err  error // set once the part has ended
}

// startPart starts a part, and sends it on the channel when it ends. The channel must have free
// capacity.
func startPart(name string, run func(context.Context) error, ended chan<- *part) *part {
	ctx, stop := context.WithCancel(context.Background())
	p := &part{name: name, stop: stop, done: make(chan struct{})}
	go func() {
		defer stop()
		p.err = run(ctx)
		close(p.done)
		ended <- p
	}()
	return p
}

// endParts stops the parts in sequence, and limits the time for each.
func endParts(parts []*part, limit time.Duration) error {
	var errs []error
	for _, p := range parts {
		p.stop()
		late := time.NewTimer(limit)
		select {
		case <-p.done:
			errs = append(errs, p.err)
		case <-late.C:
			errs = append(errs, fmt.Errorf("%s has not ended within %v", p.name, limit))
		}
		late.Stop()
	}
	return errors.Join(errs...)
}

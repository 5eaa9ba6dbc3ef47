package system

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"sync"
	"time"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/proof/harness"
	"github.com/tenure-go/tenure/internal/proof/history"
	"github.com/tenure-go/tenure/internal/proof/intercept"
)

// openLimit limits the opening of the store.
const openLimit = time.Minute

// runMember is the main function of a member process. It reads orders from in until the input ends,
// writes events to out, and returns the exit status.
func runMember(in io.Reader, out, errs io.Writer, openers []driver.Opener) int {
	m := &member{out: harness.NewWriter(out)}
	if err := m.run(in, openers); err != nil {
		_, _ = fmt.Fprintln(errs, err)
		return 1
	}
	return 0
}

// member is the process that contends and writes. The fields are set before the member's goroutines
// start.
type member struct {
	config  memberConfig
	out     *harness.Writer
	rec     *history.Recorder
	journal *journal
	gate    *harness.Gate
	wire    *wire
	elector *core.Elector
	work    *worker
}

func (m *member) run(in io.Reader, openers []driver.Opener) (err error) {
	orders := harness.NewReader(in)
	if err := orders.Read(&m.config); err != nil {
		return fmt.Errorf("tenure: system: a member's configuration: %w", err)
	}
	c := &m.config
	if m.rec, err = history.Create(c.History, c.Process); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.rec.Close()) }()
	if m.journal, err = createJournal(c.Journal); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.journal.close()) }()

	b, err := m.open(openers)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	m.wire = newWire(c.TTL, c.Seed)
	defer m.wire.close()
	m.gate = &harness.Gate{
		Held: func(writes []driver.Write) { m.report(event{Is: isHeld, Token: writes[0].Fence.Token}) },
		Late: func(_ *intercept.Call, held bool, _ error) {
			if held {
				m.report(event{Is: isSent})
			}
		},
	}
	if c.Control {
		b = harness.Unfenced(b)
	}
	recorded := history.Wrap(intercept.Wrap(intercept.Wrap(b, m.gate.Around), m.wire.around), m.rec)
	m.work = &worker{process: c.Process, pace: c.Pace, patience: 4 * c.TTL, rec: m.rec, journal: m.journal}
	m.elector, err = core.NewElector(recorded, &core.Options{
		Node: c.Node, Supersede: c.Supersede, TTL: c.TTL, Margin: marginOf(c.TTL), LockDir: filepath.Dir(c.Journal), TraceDir: filepath.Dir(c.Journal),
		Meta:        map[string]string{metaProcess: c.Process},
		DrainBudget: 6 * c.TTL, BackoffMax: 2 * c.TTL, CallTimeout: max(4*c.TTL, 2*time.Second),
		Resync: 4 * c.TTL, Seed: c.Seed, Logger: slog.New(slog.DiscardHandler), Hooks: core.Hooks{OnCall: m.called, OnEvent: m.evicted},
	})
	if err != nil {
		return err
	}
	if err := m.elector.Contend(m.work.serve, c.Shards...); err != nil {
		return err
	}
	return m.obey(harness.All[order](orders))
}

// The journal gets every heartbeat, and the delay of each slow heartbeat or ping.
func (m *member) called(c core.Call) {
	if c.Kind == "beat" && !errors.Is(c.Err, errLost) {
		n := note{Is: noteBeat, Took: history.Instant(c.Took)}
		if c.Err != nil {
			n.Why = c.Err.Error()
		}
		m.journal.add(n)
	}
	if (c.Kind == "beat" || c.Kind == "read") && c.Took > m.config.TTL/20 {
		m.journal.add(note{Is: noteSlow, Took: history.Instant(c.Took)})
	}
}

func (m *member) evicted(e core.Event) {
	if e.Kind == core.PeerEvicted {
		m.journal.add(note{Is: noteEvicted, Peer: e.Peer.Session})
	}
}

// The method records the times when this process did not run, until ctx ends. To detect such times,
// it wakes every TTL/100, and nothing in the process delays it for more than a moment. It also
// records when this process saw other members' heartbeats.
func (m *member) still(ctx context.Context) {
	tick := history.Instant(m.config.TTL / 100)
	heard := map[driver.SessionID]history.Instant{}
	for last := history.Now(); ctx.Err() == nil; {
		for peer, age := range m.elector.Heartbeats() {
			if at := history.Now() - history.Instant(age); at > heard[peer]+tick {
				heard[peer] = at
				m.journal.add(note{Is: noteHeard, Peer: peer, Took: history.Instant(age)})
			}
		}
		pause(ctx, time.Duration(tick))
		now := history.Now()
		if late := now - last - tick; late > history.Instant(m.config.TTL/20) {
			m.journal.add(note{Is: noteStill, Took: late})
		}
		last = now
	}
}

// metaProcess is the key of the process's name in a member's metadata.
const metaProcess = "process"

func (m *member) open(openers []driver.Opener) (driver.Backend, error) {
	for _, o := range openers {
		if o.Name == m.config.Opener {
			ctx, cancel := context.WithTimeout(context.Background(), openLimit)
			defer cancel()
			return open(ctx, o, m.config.Options)
		}
	}
	return nil, fmt.Errorf("tenure: system: this binary's TestMain gives Main no opener %q", m.config.Opener)
}

// report writes an event, and ignores errors. An error means that the reader is gone, so the input
// has ended too, and the process ends soon.
func (m *member) report(e event) { _ = m.out.Write(e) }

// obey runs the Elector, and carries out orders until the member must leave or the orders end.
func (m *member) obey(orders <-chan order) error {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- m.elector.Run(ctx) }()
	var moves sync.WaitGroup
	defer moves.Wait()
	moves.Go(func() { m.still(ctx) })
	defer stop() // before the wait for the moves
	m.report(event{Is: isUp})
	for {
		select {
		case err := <-ended:
			return errors.Join(errors.New("tenure: system: the elector ended by itself"), err)
		case o, more := <-orders:
			switch {
			case !more:
				stop()
				m.gate.Send()
				<-ended // within the drain budget; the supervisor may kill it earlier
				return errors.New("tenure: system: the supervisor has gone")
			case o.Do == doHold:
				m.gate.Hold(o.Shard, o.Where)
			case o.Do == doSend:
				m.gate.Send()
			case o.Do == doCalm:
				m.wire.settle()
			case o.Do == doWithdraw, o.Do == doHandOver:
				moves.Go(func() { m.move(ctx, o) })
			case o.Do == doLeave:
				stop()
				m.gate.Send()
				if err := <-ended; err != nil {
					return err
				}
				m.report(event{Is: isLeft})
				return nil
			}
		}
	}
}

// move gives a shard away, and later contends for it again.
func (m *member) move(ctx context.Context, o order) {
	wait, cancel := context.WithTimeout(ctx, 8*m.config.TTL)
	defer cancel()
	// Even if the move fails, this member no longer contends for the shard.
	if o.Do == doHandOver {
		_ = m.elector.HandOver(wait, o.To, string(o.Shard))
	} else {
		_ = m.elector.Withdraw(wait, string(o.Shard))
	}
	t := time.NewTimer(o.For)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
		return
	}
	// Contend fails if another move has already contended for the shard, or at the end of the run.
	_ = m.elector.Contend(m.work.serve, string(o.Shard))
}

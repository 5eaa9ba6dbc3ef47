package tenuretest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"sync"

	"github.com/tenure-go/tenure/backends/memory"
	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/internal/proof/harness"
	"github.com/tenure-go/tenure/internal/proof/intercept"
	"github.com/tenure-go/tenure/internal/virtual"
)

// ErrNoReply is Do's error if Do called the effect function but the member got no reply. Either the
// reply was lost, or the member crashed first. The member does not know whether the effect was
// refused.
var ErrNoReply = errors.New("tenuretest: no reply: the effect was made or refused")

// ErrCrashed is the error of calls by a crashed member. Such calls have no effect.
var ErrCrashed = fmt.Errorf("tenuretest: the member has crashed: %w", core.ErrClosed)

// errStopped is the cause with which main's context ends.
var errStopped = errors.New("tenuretest: the member is stopped")

// slot is a member and its restarts, which are processes with the same node label.
type slot struct {
	w     *World
	node  string
	main  func(ctx context.Context, m *Member) error
	life  int // number of processes so far
	now   *Member
	lives sync.WaitGroup // goroutines that run main
}

// Member is one process, from its start to its end. All methods are safe for concurrent use.
type Member struct {
	w       *World
	node    string
	life    int
	backend *backend
	link    *link
	stop    context.CancelCauseFunc

	mu   sync.Mutex
	sent map[string]int // number of equal messages
}

func (s *slot) start() {
	w := s.w
	if w.stopped {
		w.Fatalf("%s is started after Stop", s.node)
	}
	s.life++
	process := virtual.NewProcess(uint64(w.draw(math.MaxInt64, "process", s.node, s.life)))
	m := &Member{w: w, node: s.node, life: s.life, link: newLink(process), sent: make(map[string]int)}
	store, err := memory.Open(context.Background(), w.store, namespace, nil)
	if err != nil {
		w.Fatalf("%s: opening the store: %v", s.node, err)
	}
	var b core.Backend = store
	if w.control {
		b = harness.Unfenced(b)
	}
	m.backend = &backend{Backend: intercept.Wrap(b, m.around), process: process}
	ctx, stop := context.WithCancelCause(context.Background())
	m.stop = stop
	s.now = m
	w.note("%s starts, for the %s", s.node, ordinal(s.life))
	s.lives.Go(func() {
		defer stop(nil)
		err := s.main(ctx, m)
		if m.link.crashed() {
			err = nil
		} else if ctx.Err() == nil && err == nil {
			err = errors.New("main has returned before it was stopped")
		}
		if err != nil {
			w.Errorf("%s ended: %v", s.node, err)
		}
		if err := store.Close(); err != nil {
			w.Errorf("%s: closing the store: %v", s.node, err)
		}
	})
}

func ordinal(n int) string {
	switch n {
	case 1:
		return "first time"
	case 2:
		return "second time"
	case 3:
		return "third time"
	}
	return fmt.Sprintf("%dth time", n)
}

func (s *slot) stop() {
	if s.now != nil {
		s.now.stop(errStopped)
	}
}

func (s *slot) apply(x step) {
	if x.on {
		s.w.note("%s: %v begins", s.node, x.fault)
	} else {
		s.w.note("%s: %v is over", s.node, x.fault)
	}
	switch {
	case x.fault != Crash:
		s.now.link.set(x.fault, x.on)
	case x.on:
		s.now.link.crash()
		s.now.stop(ErrCrashed)
		s.now = nil
	case s.now == nil:
		s.start()
	}
}

func (s *slot) heal() {
	if s.now == nil {
		if !s.w.stopped {
			s.start()
		}
		return
	}
	s.now.link.set(AllFaults, false)
}

// Node returns the member's label: "m1", "m2" and so on. The label stays the same after a restart.
func (m *Member) Node() string { return m.node }

// Backend returns this member's connection to the store. The World closes the Backend.
func (m *Member) Backend() core.Backend { return m.backend }

// Options returns the options for an Elector, with the label, the TTL, a seed, and hooks. The
// hooks record grants, ends of leases and refused writes, which a failed test shows. The caller may
// change the options. Add further hooks with core.JoinHooks.
func (m *Member) Options() *core.Options {
	ttl := m.w.o.TTL
	seed := uint64(m.w.draw(math.MaxInt64-1, "options", m.node, m.life)) + 1
	return &core.Options{
		Node: m.node, TTL: ttl, DrainBudget: 2 * ttl, CallTimeout: ttl, LockDir: "none", Seed: seed,
		Logger: slog.New(slog.DiscardHandler),
		Hooks: core.Hooks{OnEvent: func(e core.Event) {
			switch e.Kind {
			case core.LeaseGranted:
				m.note("%s holds %s, token %d", m.node, e.Fence.Shard, e.Fence.Token)
			case core.LeaseEnded:
				if r, ok := errors.AsType[*core.RevokedError](e.Err); ok {
					m.note("%s loses %s, token %d: %v", m.node, e.Fence.Shard, e.Fence.Token, r.Cause)
				}
			case core.WriteRefused:
				m.note("%s: a write to %s is refused, token %d", m.node, e.Fence.Shard, e.Fence.Token)
			default: // a failure does not show other events
			}
		}},
	}
}

func (m *Member) note(format string, args ...any) {
	if !m.link.crashed() {
		m.w.note(format, args...)
	}
}

// Do performs an effect outside the store, such as a request to another service. Do takes time, and
// waits while the member is paused or suspended. A crashed member performs no effect. Do calls the
// function effect at most once, and never while another effect is in progress. The function must
// not wait. If the function returns an error, the effect was refused.
//
// If Do called the function, Do returns the function's error, or ErrNoReply if the member got no
// reply. If Do did not call the function, Do returns ErrCrashed or ctx's error.
func (m *Member) Do(ctx context.Context, effect func() error) error {
	x := m.message("do")
	if err := x.travel(ctx); err != nil {
		return err
	}
	if err := x.pass(context.Background(), Pause|Suspend); err != nil {
		return err
	}
	m.w.effects.Lock()
	err := effect()
	m.w.effects.Unlock()
	lost := m.link.has(LostReply)
	gone := x.travel(context.Background())
	if gone == nil {
		gone = x.pass(context.Background(), Pause|Suspend)
	}
	if lost || gone != nil {
		return ErrNoReply
	}
	return err
}

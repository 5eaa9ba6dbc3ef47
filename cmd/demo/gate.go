package main

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tenure-go/tenure/core"
)

// A gate lets the director stop this process at the worst moment: between the
// checks that core makes before a write and the sending of it. It decorates the
// backend below core, where every check has passed already. While a write is
// held nothing else of this process is in a call that writes to the store, so
// that a process stopped there keeps no lock of the store.
//
// A write that waited at the gate while the process was stopped is then sent
// whatever its context says, as a packet that had left already would arrive.
// Each such write, the zombie's, is reported with what became of it.
type gate struct {
	core.Backend
	tell func(event)

	calls sync.RWMutex // read-locked by each call that writes, locked while a write is held
	send  chan struct{}

	mu      sync.Mutex
	airport core.ShardID // whose next write is to be held
	sent    int          // writes that were held and have been sent
}

// lateLimit bounds the sending of a write after the process was resumed.
const lateLimit = 10 * time.Second

func newGate(b core.Backend, tell func(event)) *gate {
	return &gate{Backend: b, tell: tell, send: make(chan struct{}, 1)}
}

// hold makes the next write of the airport wait for release.
func (g *gate) hold(airport string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.airport = core.ShardID(airport)
}

// release lets the write that is held go.
func (g *gate) release() {
	select {
	case g.send <- struct{}{}:
	default: // nothing can be held twice
	}
}

func (g *gate) takes(writes []core.Write) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, w := range writes {
		if w.Fence.Shard == g.airport {
			g.airport = ""
			return true
		}
	}
	return false
}

func (g *gate) sentSoFar() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.sent
}

func (g *gate) noteSent() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.sent++
}

// Join returns a session whose calls pass the gate.
func (g *gate) Join(ctx context.Context, m core.Member) (core.Session, error) {
	g.calls.RLock()
	defer g.calls.RUnlock()
	s, err := g.Backend.Join(ctx, m)
	if err != nil {
		return nil, err
	}
	return &gatedSession{Session: s, gate: g}, nil
}

type gatedSession struct {
	core.Session
	gate *gate
}

func (s *gatedSession) Beat(ctx context.Context) error {
	s.gate.calls.RLock()
	defer s.gate.calls.RUnlock()
	return s.Session.Beat(ctx)
}

func (s *gatedSession) Acquire(ctx context.Context, claims []core.Claim) ([]core.AcquireResult, error) {
	s.gate.calls.RLock()
	defer s.gate.calls.RUnlock()
	return s.Session.Acquire(ctx, claims)
}

func (s *gatedSession) Transfer(ctx context.Context, to []core.Handover) ([]core.AcquireResult, error) {
	s.gate.calls.RLock()
	defer s.gate.calls.RUnlock()
	return s.Session.Transfer(ctx, to)
}

func (s *gatedSession) Release(ctx context.Context, fences []core.Fence) error {
	s.gate.calls.RLock()
	defer s.gate.calls.RUnlock()
	return s.Session.Release(ctx, fences)
}

func (s *gatedSession) Evict(ctx context.Context, suspects []core.Suspect) ([]core.EvictResult, error) {
	s.gate.calls.RLock()
	defer s.gate.calls.RUnlock()
	return s.Session.Evict(ctx, suspects)
}

func (s *gatedSession) Close(ctx context.Context) error {
	s.gate.calls.RLock()
	defer s.gate.calls.RUnlock()
	return s.Session.Close(ctx)
}

func (s *gatedSession) Commit(ctx context.Context, writes []core.Write) ([]core.CommitResult, error) {
	g := s.gate
	if g.takes(writes) {
		g.calls.Lock()
		defer g.calls.Unlock()
		g.tell(event{Is: isHeld, Writes: ofAirports(seen(writes))})
		<-g.send // the director's, or the process ends with its input
		defer g.noteSent()
		return s.sendLate(ctx, writes)
	}
	before := g.sentSoFar()
	g.calls.RLock()
	defer g.calls.RUnlock()
	if g.sentSoFar() != before {
		return s.sendLate(ctx, writes)
	}
	return s.Session.Commit(ctx, writes)
}

func (s *gatedSession) sendLate(ctx context.Context, writes []core.Write) ([]core.CommitResult, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lateLimit)
	defer cancel()
	told := seen(writes)
	results, err := s.Session.Commit(ctx, writes)
	for i := range told {
		outcome := err
		if err == nil {
			outcome = results[i].Err
		}
		told[i].judge(outcome)
	}
	if told = ofAirports(told); len(told) > 0 {
		s.gate.tell(event{Is: isAnswered, Writes: told})
	}
	return results, err
}

// ofAirports drops writes of shards that are Tenure's own, such as a plan.
func ofAirports(writes []write) []write {
	return slices.DeleteFunc(writes, func(w write) bool { return strings.HasPrefix(w.Airport, "_") })
}

// judge fills in what became of a write.
func (w *write) judge(err error) {
	var fenced *core.FencedError
	switch {
	case err == nil:
		w.Outcome = wasAccepted
	case errors.Is(err, core.ErrFenced):
		w.Outcome = wasRefused
		if errors.As(err, &fenced) {
			w.Current = int64(fenced.Current.Token)
		}
	default:
		w.Outcome, w.Cause = wasFailed, err.Error()
	}
}

// seen describes writes for the director.
func seen(writes []core.Write) []write {
	out := make([]write, len(writes))
	for i, w := range writes {
		out[i] = write{Airport: string(w.Fence.Shard), Token: int64(w.Fence.Token)}
		for _, op := range w.Ops {
			d, err := decodeDecision(op.Value)
			if op.Kind != core.OpAppend || err != nil {
				continue
			}
			if out[i].Departure == 0 {
				out[i].Departure = d.Departure
			}
			out[i].Count = d.Count
		}
	}
	return out
}

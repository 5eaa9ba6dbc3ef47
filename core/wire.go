package core

import (
	"context"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/fsm"
	"github.com/tenure-go/tenure/internal/trace"
)

// wire is the backend of an Elector that writes a trace. A wire records each call that reaches the
// backend, and the backend's answer. The trace therefore shows whether a runner makes exactly the
// calls that its machine requests, and passes the answers on unchanged.
type wire struct {
	driver.Backend
	clk *clock
	log *trace.Log
}

type callKey struct{}

// forCall returns a context by which wire recognizes a call that the machine requested.
func (e *Elector) forCall(ctx context.Context, id fsm.CallID) context.Context {
	if e.traced == nil {
		return ctx
	}
	return context.WithValue(ctx, callKey{}, id)
}

// answered records a call if the machine requested it.
func (w *wire) answered(ctx context.Context, sent fsm.Instant, eff fsm.Effect, in fsm.Input) {
	id, ok := ctx.Value(callKey{}).(fsm.CallID)
	if in.Call = id; ok {
		w.log.Called(sent, &eff, &in)
	}
}

func (w *wire) Join(ctx context.Context, m driver.Member) (driver.Session, error) {
	sent := w.clk.now()
	s, err := w.Backend.Join(ctx, m)
	w.answered(ctx, sent, fsm.Effect{Kind: fsm.EffJoin, Session: m.Session, Member: m}, fsm.Input{Err: err})
	if err != nil {
		return nil, err
	}
	out := &wireSession{Session: s, w: w}
	if x, ok := s.(driver.Explainer); ok {
		return struct {
			*wireSession
			driver.Explainer
		}{out, x}, nil
	}
	return out, nil
}

func (w *wire) Observe(ctx context.Context, q driver.ObserveQuery) (*driver.View, error) {
	sent := w.clk.now()
	v, err := w.Backend.Observe(ctx, q)
	if err == nil {
		w.log.Observed(sent, q.Since == "", v)
	}
	return v, err
}

func (w *wire) Get(ctx context.Context, shard driver.ShardID, key string) (*driver.Item, error) {
	sent := w.clk.now()
	item, err := w.Backend.Get(ctx, shard, key)
	w.answered(ctx, sent, fsm.Effect{Kind: fsm.EffRead}, fsm.Input{Err: err})
	return item, err
}

type wireSession struct {
	driver.Session
	w *wire
}

func (s *wireSession) answered(ctx context.Context, sent fsm.Instant, eff fsm.Effect, in fsm.Input) {
	eff.Session = s.ID()
	s.w.answered(ctx, sent, eff, in)
}

func (s *wireSession) Beat(ctx context.Context) error {
	sent := s.w.clk.now()
	err := s.Session.Beat(ctx)
	s.answered(ctx, sent, fsm.Effect{Kind: fsm.EffBeat}, fsm.Input{Err: err})
	return err
}

func (s *wireSession) Acquire(ctx context.Context, claims []driver.Claim) ([]driver.AcquireResult, error) {
	sent := s.w.clk.now()
	results, err := s.Session.Acquire(ctx, claims)
	s.answered(ctx, sent, fsm.Effect{Kind: fsm.EffAcquire, Claims: claims}, fsm.Input{Results: results, Err: err})
	return results, err
}

func (s *wireSession) Transfer(ctx context.Context, to []driver.Transfer) ([]driver.AcquireResult, error) {
	sent := s.w.clk.now()
	results, err := s.Session.Transfer(ctx, to)
	s.answered(ctx, sent, fsm.Effect{Kind: fsm.EffTransfer, Transfers: to}, fsm.Input{Results: results, Err: err})
	return results, err
}

func (s *wireSession) Release(ctx context.Context, fences []driver.Fence) error {
	sent := s.w.clk.now()
	err := s.Session.Release(ctx, fences)
	s.answered(ctx, sent, fsm.Effect{Kind: fsm.EffRelease, Fences: fences}, fsm.Input{Err: err})
	return err
}

func (s *wireSession) Update(ctx context.Context, st driver.MemberState) error {
	sent := s.w.clk.now()
	err := s.Session.Update(ctx, st)
	s.answered(ctx, sent, fsm.Effect{Kind: fsm.EffUpdate, State: st}, fsm.Input{Err: err})
	return err
}

func (s *wireSession) Evict(ctx context.Context, suspects []driver.Suspect) ([]driver.EvictResult, error) {
	sent := s.w.clk.now()
	results, err := s.Session.Evict(ctx, suspects)
	s.answered(ctx, sent, fsm.Effect{Kind: fsm.EffEvict, Suspects: suspects}, fsm.Input{Evictions: results, Err: err})
	return results, err
}

func (s *wireSession) Close(ctx context.Context) error {
	sent := s.w.clk.now()
	err := s.Session.Close(ctx)
	s.answered(ctx, sent, fsm.Effect{Kind: fsm.EffClose}, fsm.Input{Err: err})
	return err
}

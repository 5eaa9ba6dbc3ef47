package system

import (
	"context"
	"slices"

	"github.com/tenure-go/tenure/core/driver"
)

// call is one call of a session, as a tap sees it.
type call struct {
	kind   callKind
	shards []driver.ShardID // of a commit
	token  driver.Token     // of a commit's first write
}

type callKind string

const (
	callJoin     callKind = "join"
	callBeat     callKind = "beat"
	callAcquire  callKind = "acquire"
	callTransfer callKind = "transfer"
	callRelease  callKind = "release"
	callCommit   callKind = "commit"
	callEvict    callKind = "evict"
	callClose    callKind = "close"
)

// around decides what becomes of a call. It calls do, or not; do may also be
// called after around returned an error. An error from it drops the results.
type around func(ctx context.Context, c call, do func(context.Context) error) error

// tap decorates a backend: every call that writes goes through around.
func tap(b driver.Backend, a around) driver.Backend { return &tapped{Backend: b, around: a} }

type tapped struct {
	driver.Backend
	around around
}

type tappedSession struct {
	driver.Session
	around around
}

var (
	_ driver.Backend = (*tapped)(nil)
	_ driver.Session = (*tappedSession)(nil)
)

func (b *tapped) Join(ctx context.Context, m driver.Member) (driver.Session, error) {
	s, err := results(ctx, b.around, call{kind: callJoin}, func(ctx context.Context) (driver.Session, error) {
		return b.Backend.Join(ctx, m)
	})
	if err != nil {
		return nil, err
	}
	return &tappedSession{Session: s, around: b.around}, nil
}

func (s *tappedSession) Beat(ctx context.Context) error {
	return s.around(ctx, call{kind: callBeat}, s.Session.Beat)
}

func (s *tappedSession) Acquire(ctx context.Context, claims []driver.Claim) ([]driver.AcquireResult, error) {
	claims = slices.Clone(claims)
	return results(ctx, s.around, call{kind: callAcquire}, func(ctx context.Context) ([]driver.AcquireResult, error) {
		return s.Session.Acquire(ctx, claims)
	})
}

func (s *tappedSession) Transfer(ctx context.Context, to []driver.Handover) ([]driver.AcquireResult, error) {
	to = slices.Clone(to)
	return results(ctx, s.around, call{kind: callTransfer}, func(ctx context.Context) ([]driver.AcquireResult, error) {
		return s.Session.Transfer(ctx, to)
	})
}

func (s *tappedSession) Release(ctx context.Context, fences []driver.Fence) error {
	fences = slices.Clone(fences)
	return s.around(ctx, call{kind: callRelease}, func(ctx context.Context) error { return s.Session.Release(ctx, fences) })
}

func (s *tappedSession) Commit(ctx context.Context, writes []driver.Write) ([]driver.CommitResult, error) {
	writes = slices.Clone(writes)
	c := call{kind: callCommit}
	for i := range writes {
		c.shards = append(c.shards, writes[i].Fence.Shard)
		writes[i].Ops = slices.Clone(writes[i].Ops)
	}
	if len(writes) > 0 {
		c.token = writes[0].Fence.Token
	}
	return results(ctx, s.around, c, func(ctx context.Context) ([]driver.CommitResult, error) {
		return s.Session.Commit(ctx, writes)
	})
}

func (s *tappedSession) Evict(ctx context.Context, suspects []driver.Suspect) ([]driver.EvictResult, error) {
	suspects = slices.Clone(suspects)
	return results(ctx, s.around, call{kind: callEvict}, func(ctx context.Context) ([]driver.EvictResult, error) {
		return s.Session.Evict(ctx, suspects)
	})
}

func (s *tappedSession) Close(ctx context.Context) error {
	return s.around(ctx, call{kind: callClose}, s.Session.Close)
}

func results[R any](ctx context.Context, a around, c call, do func(context.Context) (R, error)) (R, error) {
	var none, res R
	err := a(ctx, c, func(ctx context.Context) (err error) {
		res, err = do(ctx)
		return err
	})
	if err != nil {
		return none, err // res may be written to yet
	}
	return res, nil
}

package system

import (
	"context"
	"errors"

	"github.com/tenure-go/tenure/core/driver"
)

// unfenced is the control: a decorator that makes a backend behave as one without
// fencing tokens. A write that is refused because its fence is dead or its number
// is taken is sent again, under the present fence and at the present head. It
// lives here, to show that the damage is found.
type unfenced struct{ driver.Backend }

type unfencedSession struct {
	driver.Session
	b driver.Backend
}

// maxOverrides bounds how often one write is sent again: owner and head may
// change in between.
const maxOverrides = 50

// Join returns a session whose commits are not fenced.
func (u unfenced) Join(ctx context.Context, m driver.Member) (driver.Session, error) {
	s, err := u.Backend.Join(ctx, m)
	if err != nil {
		return nil, err
	}
	return unfencedSession{s, u.Backend}, nil
}

// Commit sends refused writes again.
func (s unfencedSession) Commit(ctx context.Context, writes []driver.Write) ([]driver.CommitResult, error) {
	results, err := s.Session.Commit(ctx, writes)
	if err != nil {
		return results, err
	}
	for i, w := range writes {
		for range maxOverrides {
			if !s.override(ctx, &w, results[i].Err) {
				break
			}
			again, err := s.Session.Commit(ctx, []driver.Write{w})
			if err != nil {
				results[i] = driver.CommitResult{Err: err}
				break
			}
			results[i] = again[0]
		}
	}
	return results, nil
}

// override gives a refused write the fence and number that the store names. It
// reports whether the write is worth sending again.
func (s unfencedSession) override(ctx context.Context, w *driver.Write, refusal error) bool {
	var conflict *driver.ConflictError
	switch {
	case errors.Is(refusal, driver.ErrFenced):
		owner := s.owner(ctx, w.Fence.Shard, refusal)
		w.Fence.Session, w.Fence.Token = owner.Session, owner.Token
		return owner.Session != ""
	case errors.As(refusal, &conflict) && conflict.Op == driver.NumberConflict:
		if conflict.Head.Number == w.Number && conflict.Head.Nonce == w.Nonce {
			return false // it was applied
		}
		w.Number = conflict.Head.Number + 1
		return true
	}
	return false
}

// owner is the shard's record as the refusal tells it, or, where the store does
// not tell, as it is read.
func (s unfencedSession) owner(ctx context.Context, shard driver.ShardID, refusal error) driver.Owner {
	var fenced *driver.FencedError
	if errors.As(refusal, &fenced) && fenced.Current != (driver.Owner{}) {
		return fenced.Current
	}
	v, err := s.b.Observe(ctx, driver.ObserveQuery{})
	if err != nil {
		return driver.Owner{}
	}
	for _, st := range v.Shards {
		if st.Shard == shard {
			return st.Owner
		}
	}
	return driver.Owner{}
}

package main

import (
	"context"
	"errors"
	"strings"

	"github.com/tenure-go/tenure/core"
)

// unfenced is the control: a decorator of a backend that makes it behave as a
// program without fencing tokens would. A write that the store refuses, because
// its fence is dead or its number is taken, is sent again under whatever fence
// and number are the current ones. It exists to show that the damage it does is
// found; no shipped package has such a switch.
type unfenced struct{ core.Backend }

// maxOverrides bounds how often one write is sent again: owner and head may
// change in between.
const maxOverrides = 20

func (u unfenced) Join(ctx context.Context, m core.Member) (core.Session, error) {
	s, err := u.Backend.Join(ctx, m)
	if err != nil {
		return nil, err
	}
	return unfencedSession{s}, nil
}

type unfencedSession struct{ core.Session }

func (s unfencedSession) Commit(ctx context.Context, writes []core.Write) ([]core.CommitResult, error) {
	results, err := s.Session.Commit(ctx, writes)
	if err != nil {
		return results, err
	}
	for i, w := range writes {
		if strings.HasPrefix(string(w.Fence.Shard), "_") {
			continue // plans and the like: the control is about the departures
		}
		for range maxOverrides {
			if !override(&w, results[i].Err) {
				break
			}
			again, err := s.Session.Commit(ctx, []core.Write{w})
			if err != nil {
				results[i] = core.CommitResult{Err: err}
				break
			}
			results[i] = again[0]
		}
	}
	return results, nil
}

// override gives a refused write the fence and number that the store names as
// the current ones. It reports whether the write is worth sending again.
func override(w *core.Write, refusal error) bool {
	var fenced *core.FencedError
	var conflict *core.ConflictError
	switch {
	case errors.As(refusal, &fenced) && fenced.Current.Session != "":
		w.Fence.Session, w.Fence.Token = fenced.Current.Session, fenced.Current.Token
	case errors.As(refusal, &conflict) && conflict.Op == core.NumberConflict:
		w.Number = conflict.Head.Number + 1
	default:
		return false
	}
	return true
}

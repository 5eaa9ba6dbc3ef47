package sidecar

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/core/control"
	"github.com/tenure-go/tenure/effect"
)

type beginBody struct {
	Token core.Token `json:"token"`
	Key   string     `json:"key"`
}

type endBody struct {
	Token   core.Token `json:"token"`
	Attempt string     `json:"attempt"`
	outcomeBody
}

type resolveBody struct {
	beginBody
	Doubt string `json:"doubt"`
	outcomeBody
}

type outcomeBody struct {
	State  string `json:"state"`
	Reason string `json:"reason"`
	payload
}

// Package effect limits a reason to this number of bytes.
const maxReason = 500

// Only a report with the state done may have a result.
func (b *outcomeBody) decision(doubts bool) (d effect.Decision, err error) {
	valued := b.Text != nil || b.Base64 != nil
	switch {
	case b.State == effectDone && valued:
		d.Result, err = b.bytes()
		d.State = effect.Done
	case b.State == effectDone:
		d.State = effect.Done
	case valued:
		err = errors.New("only the state done has a result: leave out text and base64")
	case b.State == effectFailed:
		d.State = effect.Failed
	case b.State == effectRepeat:
		d.State = effect.Repeat
	case b.State != effectInDoubt || !doubts:
		err = fmt.Errorf("the state %.40q is not one of those that the request may have", b.State)
	}
	d.Reason = cmp.Or(b.Reason, "its client says: "+b.State)
	// If the store hangs, an attempt outlives its request, so the attempt must not keep a large
	// body in memory.
	d.Result = bytes.Clone(d.Result[:min(len(d.Result), effect.MaxMaxResult+1)])
	d.Reason = strings.Clone(d.Reason[:min(len(d.Reason), maxReason)])
	return d, err
}

func (s *Server) beginEffect(w http.ResponseWriter, r *http.Request) {
	var body beginBody
	s.serveEffect(w, r, func(d *json.Decoder) (core.Token, error) {
		err := d.Decode(&body)
		return body.Token, err
	}, func(ctx context.Context, x *effects) (effectReply, error) {
		return x.begin(ctx, body.Key, nil)
	})
}

func (s *Server) endEffect(w http.ResponseWriter, r *http.Request) {
	var body endBody
	var said effect.Decision
	s.serveEffect(w, r, func(d *json.Decoder) (_ core.Token, err error) {
		if err = d.Decode(&body); err == nil {
			said, err = body.decision(true)
		}
		return body.Token, err
	}, func(ctx context.Context, x *effects) (effectReply, error) {
		return x.end(ctx, body.Attempt, said)
	})
}

func (s *Server) resolveEffect(w http.ResponseWriter, r *http.Request) {
	var body resolveBody
	var found effect.Decision
	s.serveEffect(w, r, func(d *json.Decoder) (_ core.Token, err error) {
		if err = d.Decode(&body); err == nil {
			found, err = body.decision(false)
		}
		return body.Token, err
	}, func(ctx context.Context, x *effects) (effectReply, error) {
		return x.resolved(ctx, body.Key, body.Doubt, &control.Rule{
			Outcome: body.State, Result: string(found.Result), Reason: found.Reason, Author: "a client of tenure serve"})
	})
}

func (s *Server) serveEffect(w http.ResponseWriter, r *http.Request, decode func(*json.Decoder) (core.Token, error),
	do func(context.Context, *effects) (effectReply, error)) {
	_, x, done, err := s.under(w, r, decode)
	if err != nil {
		fail(w, err)
		return
	}
	defer done()
	if x == nil {
		fail(w, noEffectsProblem())
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), s.callTime)
	defer cancel()
	reply, err := do(ctx, x)
	if err != nil {
		fail(w, err)
		return
	}
	answer(w, http.StatusOK, reply)
}

// A lock has no effects, because their records would outlive the lease, and a lock leaves no
// records behind.
func noEffectsProblem() *problem {
	return refuse(http.StatusConflict, codeNoEffects, "a lock keeps no records of effects: contend for a shard")
}

type effectsReply struct {
	Effects []effectReply `json:"effects"`
	Unread  string        `json:"unread,omitempty"` // why some effects are missing
}

func (s *Server) listEffects(w http.ResponseWriter, r *http.Request) {
	c, err := s.tenancyOf(r)
	if err != nil {
		fail(w, err)
		return
	}
	_, x, err := c.current()
	if err == nil && x == nil {
		err = noEffectsProblem()
	}
	if err != nil {
		fail(w, err)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), s.callTime)
	defer cancel()
	leave, err := s.answers.take(ctx, pageBytes)
	if err != nil {
		fail(w, err)
		return
	}
	defer leave()
	list, err := x.list(ctx)
	if err != nil {
		fail(w, err)
		return
	}
	answer(w, http.StatusOK, list)
}

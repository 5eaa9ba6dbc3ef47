package route

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/internal/peerdial"
)

type sending struct {
	c       *Client
	key     string
	first   *http.Request
	attempt int
	sent    bool     // the request was passed to a RoundTripper
	named   *url.URL // the address that an answer named; if nil, the map decides
	follows int

	token   core.Token // token of the owner that was tried last
	changed <-chan struct{}
	wait    time.Duration
}

func (s *sending) end() {
	if !s.sent && s.first.Body != nil {
		_ = s.first.Body.Close() // nothing was sent
	}
}

// try sends the request once. If nothing was done and another attempt may succeed, undone is true.
func (s *sending) try() (resp *http.Response, undone bool, err error) {
	c, ctx := s.c, s.first.Context()
	if err := ctx.Err(); err != nil {
		return nil, false, err
	}
	owner, to, changed, err := c.table.find(s.key)
	s.token, s.changed, s.wait = owner.Token, changed, c.backoff(s.attempt)
	if s.named != nil {
		to, s.named = s.named, nil
	} else if err != nil {
		return nil, true, err
	}
	if to == nil || !c.allowed(to) {
		return nil, false, fmt.Errorf("tenure: shard %q of %q: %w", owner.Shard, owner.Node, ErrAddress)
	}
	traced, way := deliver(ctx)
	r := s.first.Clone(traced)
	direct(r, to)
	if s.sent && s.first.GetBody != nil {
		if r.Body, err = s.first.GetBody(); err != nil {
			return nil, false, fmt.Errorf("tenure: reading the body again: %w", err)
		}
	}
	s.sent = true
	resp, err = c.base.RoundTrip(r)
	if err != nil {
		switch op := (*net.OpError)(nil); {
		case errors.Is(err, peerdial.ErrLocal):
			return nil, false, fmt.Errorf("tenure: shard %q of %q: %w: %w", owner.Shard, owner.Node, ErrAddress, err)
		case ctx.Err() == nil && (errors.As(err, &op) && op.Op == "dial" || way.unsent()):
			c.Refresh()
			return nil, true, err
		}
		return nil, false, err
	}
	p := refusal(resp)
	switch {
	case p == nil:
		return resp, false, nil
	case p.Type == problemOwner:
		next, err := checkAddress(p.Address)
		if err != nil || !c.allowed(next) {
			return resp, false, nil
		}
		c.table.learn(p, next, to)
		c.Refresh()
		if p.Token < s.token {
			break // the answer named a former owner, which may be about to stop
		}
		s.named = next
		if s.follows++; s.follows <= followAtOnce {
			s.wait = 0
		}
	default:
		c.Refresh() // request the map from another member, because this map may be out of date
		s.wait = min(s.wait, pause(resp, c.o.Wait))
	}
	return resp, true, nil
}

func (c *Client) backoff(attempt int) time.Duration {
	d := min(firstPause<<min(attempt-1, 16), c.o.Wait)
	return d/2 + rand.N(d/2+1)
}

func (c *Client) allowed(to *url.URL) bool {
	if c.o.Allow != nil {
		return c.o.Allow(to)
	}
	return !peerdial.Local(net.JoinHostPort(to.Hostname(), "1"))
}

// If the map names a different owner, pause returns early.
func (s *sending) pause() error {
	ctx := s.first.Context()
	late := time.NewTimer(s.wait)
	defer late.Stop()
	for {
		select {
		case <-late.C:
			return ctx.Err()
		case <-ctx.Done():
			return ctx.Err()
		case <-s.changed:
		}
		owner, _, changed, err := s.c.table.find(s.key)
		if s.changed = changed; err == nil && owner.Token != s.token {
			s.named = nil // the map is newer than the named address
			return ctx.Err()
		}
	}
}

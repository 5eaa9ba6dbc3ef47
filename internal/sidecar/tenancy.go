package sidecar

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/core/driver"
)

// Clients see a lease in one of these states.
const (
	stateWaiting  = "waiting"  // the shard has another owner, or no owner yet
	stateHeld     = "held"     // the client holds the lease
	stateStopping = "stopping" // the client still holds the lease and should release it soon
	stateOver     = "over"     // the last state of a stream
)

const minTTL = 100 * time.Millisecond

// A tenancy represents a client that contends for a shard or holds a lock, from its request until
// its stream ends. All methods are safe for concurrent use.
type tenancy struct {
	s     *Server
	id    string
	shard string
	ttl   time.Duration // how long a client may be silent before it counts as gone
	lock  bool          // the shard is a lock, which has one lease and no effects

	changed chan struct{} // receives an element when the state changes
	done    chan struct{} // closed when the tenancy is over
	back    chan struct{} // closed when the shard is released

	mu       sync.Mutex
	deadline time.Time // when the client counts as gone
	lease    *core.Lease
	effects  *effects // effects of lease; nil for a lock
	stopping error    // why the client was asked to release
	cause    string   // why the last lease, or the tenancy, ended
	over     bool
}

func newTenancy(s *Server, shard string, ttl time.Duration) *tenancy {
	return &tenancy{
		s: s, id: rand.Text(), shard: shard, ttl: ttl,
		changed: make(chan struct{}, 1), done: make(chan struct{}), back: make(chan struct{}),
		deadline: time.Now().Add(ttl),
	}
}

type leaseState struct {
	Lease string `json:"lease"`
	Shard string `json:"shard"`
	State string `json:"state"`
	TTL   int64  `json:"ttl_ms"`
	// Remaining is the time for which the client may rely on the lease without another request.
	Remaining int64       `json:"remaining_ms"`
	Token     core.Token  `json:"token,omitempty"`
	Fence     *core.Fence `json:"fence,omitempty"`
	Head      *headState  `json:"head,omitempty"`
	Cause     string      `json:"cause,omitempty"`
}

type headState struct {
	Seq    core.Seq `json:"seq"`
	Oldest core.Seq `json:"oldest"`
}

func newHeadState(h core.Head) headState { return headState{h.Seq, max(h.Oldest, 1)} }

func (c *tenancy) state() leaseState {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := leaseState{Lease: c.id, Shard: c.shard, State: stateWaiting, TTL: c.ttl.Milliseconds(), Cause: c.cause}
	switch {
	case c.over:
		s.State = stateOver
	case c.lock && c.lease != nil && c.lease.Err() != nil: // the lock has just been lost
		s.State, s.Cause = stateOver, c.lease.Err().Error()
	case c.lease != nil && c.lease.Err() == nil:
		fence, head := c.lease.Fence(), newHeadState(c.lease.Head())
		s.State, s.Token, s.Fence, s.Head = stateHeld, fence.Token, &fence, &head
		s.Remaining = max(0, min(c.lease.Remaining(), time.Until(c.deadline)).Milliseconds())
		if c.stopping != nil {
			s.State, s.Cause = stateStopping, c.stopping.Error()
		}
	}
	return s
}

func (c *tenancy) news() {
	select {
	case c.changed <- struct{}{}:
	default:
	}
}

// A request shows that the client is alive. The result is false if the client was silent for its
// TTL, or if the tenancy is over.
func (c *tenancy) alive() bool {
	now := time.Now()
	c.mu.Lock()
	silent := !now.Before(c.deadline)
	if !silent && !c.over {
		c.deadline = now.Add(c.ttl)
		c.mu.Unlock()
		return true
	}
	c.mu.Unlock()
	if silent {
		c.endSilent()
	}
	return false
}

// The result is the time for which the client may remain silent.
func (c *tenancy) silence() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Until(c.deadline)
}

func (c *tenancy) endSilent() {
	c.end(fmt.Sprintf("the client made no request for %v: call beat more often", c.ttl))
}

// After end returns, no request can use the lease. The stream, which owns the tenancy, then
// releases the shard.
func (c *tenancy) end(cause string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.over {
		c.over, c.cause, c.lease = true, cause, nil
		close(c.done)
		c.news()
	}
}

func (c *tenancy) held(token core.Token) (*core.Lease, *effects, error) {
	l, x, err := c.current()
	if err == nil && l.Token() != token {
		err = refuse(http.StatusConflict, codeFenced, "shard %q: token %d is not the current one, %d: what it stood for is over",
			c.shard, token, l.Token())
	}
	return l, x, err
}

func (c *tenancy) current() (*core.Lease, *effects, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.over:
		return nil, nil, overProblem(c.cause)
	case c.lease == nil:
		return nil, nil, notHeldProblem(c.shard)
	}
	return c.lease, c.effects, nil
}

func notHeldProblem(shard string) *problem {
	return refuse(http.StatusConflict, codeNotHeld, "shard %q is not held at present: wait for the state %q", shard, stateHeld)
}

func overProblem(cause string) *problem {
	return refuse(http.StatusGone, codeOver, "the lease is over: %s: contend again", cause)
}

// The shard's handler holds each lease on behalf of the client.
func (c *tenancy) lead(ctx context.Context, l *core.Lease) error {
	x := newEffects(c.s, l)
	c.grant(l, x)
	c.hold(ctx, l)
	x.leave()
	return nil
}

func (c *tenancy) grant(l *core.Lease, x *effects) {
	c.mu.Lock()
	if !c.over {
		c.lease, c.effects, c.stopping, c.cause = l, x, nil, ""
	}
	c.mu.Unlock()
	c.news()
}

func (c *tenancy) hold(ctx context.Context, l *core.Lease) {
	var lost error
	select {
	case <-c.done:
	case <-ctx.Done():
		if lost = context.Cause(ctx); !errors.Is(lost, core.ErrLost) {
			lost = c.drain(l, lost)
		}
	}
	if c.lock && lost != nil {
		c.end(lost.Error())
	}
	c.mu.Lock()
	c.lease, c.effects = nil, nil
	if !c.over && lost != nil {
		c.cause = lost.Error()
	}
	c.mu.Unlock()
	c.news()
}

// The client is asked to release the lease. The wait ends when it has done so or the time is up.
func (c *tenancy) drain(l *core.Lease, why error) error {
	c.mu.Lock()
	c.stopping = why
	c.mu.Unlock()
	c.news()
	t := time.NewTimer(c.s.budget)
	defer t.Stop()
	select {
	case <-c.done:
	case <-l.Context().Done():
		return context.Cause(l.Context())
	case <-t.C:
	}
	return why
}

type contendBody struct {
	TTL *int64 `json:"ttl_ms"`
}

func (b *contendBody) time(s *Server) (time.Duration, error) {
	if b.TTL == nil {
		return s.ttl, nil
	}
	if least, most := minTTL.Milliseconds(), s.ttl.Milliseconds(); *b.TTL < least || *b.TTL > most {
		return 0, refuse(http.StatusBadRequest, codeInvalid, "ttl_ms %d is outside %d to %d, the sidecar's own TTL", *b.TTL, least, most)
	}
	return time.Duration(*b.TTL) * time.Millisecond, nil
}

// A lease's stream owns the tenancy.
func (s *Server) contend(w http.ResponseWriter, r *http.Request) {
	shard, err := shardOf(r)
	if err == nil && driver.IsLock(core.ShardID(shard)) {
		err = refuse(http.StatusBadRequest, codeInvalid, "shard %q is a lock: POST /v1/locks/NAME takes it", shard)
	}
	if err != nil {
		fail(w, err)
		return
	}
	var body contendBody
	done, err := s.decode(w, r, optional(&body))
	if err != nil {
		fail(w, err)
		return
	}
	done()
	ttl, err := body.time(s)
	if err != nil {
		fail(w, err)
		return
	}
	c := newTenancy(s, shard, ttl)
	if err := s.admit(c); err != nil {
		fail(w, err)
		return
	}
	out := newStream(w)
	s.follow(r.Context(), c, out)
	s.giveBack(c, func(ctx context.Context) error { return s.e.Withdraw(ctx, shard) })
	_ = out.event("lease", c.state(), writeTime)
}

func (s *Server) follow(ctx context.Context, c *tenancy, out *stream) {
	repeat := time.NewTicker(c.ttl / 4)
	defer repeat.Stop()
	for {
		left := c.silence()
		if left <= 0 {
			c.endSilent()
			return
		}
		// A stopped client reads nothing, so a write must not outlast the client's TTL.
		if err := out.event("lease", c.state(), left); err != nil {
			c.end("the stream has ended: " + err.Error())
			return
		}
		quiet := time.NewTimer(left)
		select {
		case <-ctx.Done():
			c.end("the stream has ended")
		case <-s.ended.Done():
			c.end("the sidecar has ended")
		case <-c.done:
		case <-c.changed:
		case <-repeat.C:
		case <-quiet.C:
		}
		quiet.Stop()
		select {
		case <-c.done:
			return
		default:
		}
	}
}

// Unless the client wants a lock, admit also makes the Elector contend for the shard.
func (s *Server) admit(c *tenancy) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.ending:
		return stoppingProblem()
	case s.shards[c.shard] != nil: // the shard is never a lock
		return refuse(http.StatusConflict, codeContended,
			"another client of this sidecar contends for shard %q: end it, try again, or give each client its own sidecar", c.shard)
	case len(s.leases) >= s.maxLeases:
		return refuse(http.StatusServiceUnavailable, codeBusy, "%d clients contend, which is the most: try again", len(s.leases))
	}
	if !c.lock {
		if err := s.e.Contend(c.lead, c.shard); err != nil {
			return err
		}
		s.shards[c.shard] = c
	}
	s.leases[c.id] = c
	return nil
}

func stoppingProblem() *problem {
	return refuse(http.StatusServiceUnavailable, codeStopping, "the sidecar ends")
}

func (s *Server) giveBack(c *tenancy, give func(context.Context) error) {
	ctx, cancel := context.WithTimeout(context.Background(), s.giveTime)
	defer cancel()
	if err := give(ctx); err != nil {
		s.log.Warn("lease not given back in time", "shard", c.shard, "error", err)
	}
	s.leave(c)
	close(c.back)
}

func (s *Server) leave(c *tenancy) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.leases, c.id)
	delete(s.shards, c.shard)
}

// Each request about a tenancy shows that its client is alive.
func (s *Server) tenancyOf(r *http.Request) (*tenancy, error) {
	s.mu.Lock()
	c := s.leases[r.PathValue("lease")]
	s.mu.Unlock()
	if c == nil {
		return nil, overProblem("no client has it, or no longer")
	}
	if !c.alive() {
		return nil, overProblem(c.state().Cause)
	}
	return c, nil
}

func (s *Server) beat(w http.ResponseWriter, r *http.Request) {
	c, err := s.tenancyOf(r)
	if err != nil {
		fail(w, err)
		return
	}
	answer(w, http.StatusOK, c.state())
}

func (s *Server) release(w http.ResponseWriter, r *http.Request) {
	c, err := s.tenancyOf(r)
	if err != nil {
		fail(w, err)
		return
	}
	c.end("released by the client")
	select {
	case <-c.back:
		answer(w, http.StatusOK, struct{}{})
	case <-r.Context().Done():
	}
}

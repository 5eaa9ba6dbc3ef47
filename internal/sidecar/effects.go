package sidecar

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/core/control"
	"github.com/tenure-go/tenure/effect"
)

const (
	leaseAttempts = 64   // maximum number of concurrent attempts of one lease
	mostAttempts  = 1024 // maximum number of concurrent attempts of all leases
	attemptTime   = 5 * time.Minute
	listedEffects = 1000 // maximum number of effects in one answer
)

// Clients see an effect in one of these states.
const (
	effectGo       = "go"        // this client performs the effect now
	effectUnderWay = "under_way" // another attempt has not ended
	effectDone     = "done"
	effectFailed   = "failed"
	effectRepeat   = "repeat" // the next begin performs the effect
	effectInDoubt  = "in_doubt"
)

// An effectReply describes an effect to clients.
type effectReply struct {
	Key     string `json:"key"`
	ID      string `json:"id"` // the idempotency key
	State   string `json:"state"`
	Attempt string `json:"attempt,omitempty"` // only with the state go
	Doubt   string `json:"doubt,omitempty"`   // the name of a state that can be resolved
	Reason  string `json:"reason,omitempty"`
	payload
	NotKept bool `json:"not_kept,omitempty"`
}

// The name of an open effect's state changes after each decision.
func doubtName(e *effect.Effect) string {
	return fmt.Sprintf("%x.%d", e.Began.UnixNano(), e.Repeats)
}

// The effect must be open and have no attempt in progress.
func (r *effectReply) setOpen(e *effect.Effect) {
	r.State, r.Doubt, r.Reason = effectInDoubt, doubtName(e), e.Reason
	if e.State == effect.Repeat {
		r.State = effectRepeat
	}
}

// While a client performs an effect, a function in this package waits for the client to end the
// attempt. All methods of effects are safe for concurrent use.
type effects struct {
	s     *Server
	lease *core.Lease
	ctx   context.Context // ends when the lease is released or lost
	stop  context.CancelFunc

	opening sync.Mutex
	ledger  *effect.Ledger // nil until the first request; guarded by opening

	mu       sync.Mutex
	attempts map[string]*attempt // attempts by the effect's key
}

type attempt struct {
	id    string
	key   string
	rule  *control.Rule        // the client's finding before the attempt, or nil
	tells chan struct{}        // the client that began the attempt receives from it
	gone  chan struct{}        // closed when that client no longer waits
	done  chan struct{}        // closed after result and err are set
	says  chan effect.Decision // the client's report, at most one; State is empty if the client does not know the outcome
	ended bool                 // a report was sent to says; guarded by effects.mu
	after effect.Decision      // the report, unless its state is done; guarded by effects.mu

	result []byte
	err    error
}

func newEffects(s *Server, l *core.Lease) *effects {
	x := &effects{s: s, lease: l, attempts: make(map[string]*attempt)}
	x.ctx, x.stop = context.WithCancel(l.Context())
	return x
}

// All attempts end, and their effects are in doubt. After leave returns, no attempt writes to the
// store.
func (x *effects) leave() {
	x.stop()
	x.opening.Lock()
	defer x.opening.Unlock()
	if x.ledger != nil {
		x.ledger.Close()
	}
}

// The first call opens the lease's ledger.
func (x *effects) open() (*effect.Ledger, error) {
	x.opening.Lock()
	defer x.opening.Unlock()
	if x.ctx.Err() != nil {
		return nil, notHeldProblem(x.lease.Shard())
	}
	if x.ledger != nil {
		return x.ledger, nil
	}
	ctx, cancel := context.WithTimeout(x.ctx, x.s.callTime)
	defer cancel()
	l, err := effect.Open(ctx, x.lease, &effect.Options{
		Rules: x.rules, Resolve: x.resolve, Concurrent: leaseAttempts, Attempts: 1, Deadline: attemptTime,
		MaxResult: min(effect.MaxMaxResult, x.s.limits.WriteBytes/4), Scope: x.lease.Namespace() + "/" + x.lease.Shard(),
		Logger: x.s.log, Stats: &x.s.effects,
	})
	x.ledger = l
	return l, err
}

// The rules contain the operators' decisions about effects and the clients' findings.
func (x *effects) rules() []control.Rule {
	all := slices.Clip(x.s.e.View().Rules)
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, a := range x.attempts {
		if a.rule != nil {
			all = append(all, *a.rule)
		}
	}
	return all
}

// If an attempt did not end with the state done, the client's report decides the effect. Effects
// that a previous leader left open cannot be decided in this way. The ledger calls resolve on the
// attempt's goroutine.
func (x *effects) resolve(_ context.Context, e effect.Effect) (effect.Decision, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if a := x.attempts[e.Key]; a != nil && a.after.Reason != "" {
		return a.after, nil
	}
	return effect.Decision{Reason: e.Reason}, nil
}

func (x *effects) reply(key string) effectReply {
	return effectReply{Key: key, ID: effect.ID(x.lease.Namespace()+"/"+x.lease.Shard(), key)}
}

// begin starts this client's attempt at an effect, unless the effect needs no attempt or another
// attempt is in progress.
func (x *effects) begin(ctx context.Context, key string, rule *control.Rule) (effectReply, error) {
	if err := effect.CheckKey(key); err != nil {
		return effectReply{}, err
	}
	l, err := x.open()
	if err != nil {
		return effectReply{}, err
	}
	reply := x.reply(key)
	a := &attempt{id: rand.Text(), key: key, rule: rule, tells: make(chan struct{}), gone: make(chan struct{}),
		says: make(chan effect.Decision, 1), done: make(chan struct{})}
	switch other, err := x.admit(a); {
	case err != nil:
		return reply, err
	case other:
		reply.State = effectUnderWay
		return reply, nil
	}
	go x.run(l, a)
	select {
	case <-a.tells:
		reply.State, reply.Attempt = effectGo, a.id
		return reply, nil
	case <-a.done:
		return reply, x.outcome(&reply, a)
	case <-ctx.Done():
		close(a.gone)
		return reply, unsure(refuse(http.StatusServiceUnavailable, codeStore,
			"effect %q: the store did not answer in time: begin again", key), nil)
	}
}

// admit gives a place to an attempt, unless another attempt at the same effect has one.
func (x *effects) admit(a *attempt) (other bool, err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.attempts[a.key] != nil {
		return true, nil
	}
	if len(x.attempts) >= leaseAttempts {
		return false, refuse(http.StatusServiceUnavailable, codeBusy,
			"%d effects of the lease are under way, which is the most: end some", leaseAttempts)
	}
	select {
	case x.s.attempts <- struct{}{}:
	default:
		return false, refuse(http.StatusServiceUnavailable, codeBusy, "%d effects are under way, which is the most: try again", mostAttempts)
	}
	x.attempts[a.key] = a
	return false, nil
}

func (x *effects) run(l *effect.Ledger, a *attempt) {
	a.result, a.err = l.Do(context.Background(), a.key, func(ctx context.Context, _ string) ([]byte, error) {
		d := x.await(ctx, a)
		if d.State == effect.Done {
			return d.Result, nil
		}
		x.mu.Lock()
		defer x.mu.Unlock()
		a.after = d
		return nil, errors.New(d.Reason)
	})
	x.mu.Lock()
	delete(x.attempts, a.key)
	x.mu.Unlock()
	<-x.s.attempts
	close(a.done)
}

func (x *effects) await(ctx context.Context, a *attempt) effect.Decision {
	if a.rule != nil && a.rule.Outcome != control.OutcomeRepeat {
		return effect.Decision{State: effect.Repeat, Reason: "it was to be repeated before its client resolved it"}
	}
	select {
	case a.tells <- struct{}{}:
	case <-a.gone:
		return effect.Decision{State: effect.Repeat, Reason: "its client was not told to make it"}
	}
	select {
	case d := <-a.says:
		return d
	case <-x.ctx.Done():
		return effect.Decision{Reason: "the lease was over before its client ended it"}
	case <-ctx.Done():
		return effect.Decision{Reason: fmt.Sprintf("its client did not end it in %v", attemptTime)}
	}
}

func (x *effects) end(ctx context.Context, id string, d effect.Decision) (effectReply, error) {
	x.mu.Lock()
	var a *attempt
	for _, other := range x.attempts {
		if other.id == id && !other.ended {
			a = other
			a.ended = true
			a.says <- d
		}
	}
	x.mu.Unlock()
	if a == nil {
		return effectReply{}, refuse(http.StatusPreconditionFailed, codeConflict,
			"the lease has no attempt %.40q under way: it has ended: begin answers what became of the effect", id)
	}
	reply := x.reply(a.key)
	select {
	case <-a.done:
	case <-ctx.Done():
		return reply, unwritten(a.key, context.Cause(ctx))
	}
	err := x.outcome(&reply, a)
	if err != nil || d.State != "" && reply.State == effectInDoubt {
		err = unwritten(a.key, a.err)
	}
	return reply, err
}

// unwritten returns the error for an attempt whose outcome may not have been stored.
func unwritten(key string, cause error) *problem {
	return unsure(refuse(http.StatusGatewayTimeout, codeUnknown,
		"effect %q: its end may not be written: begin it again, or list the effects: %v", key, cause), nil)
}

// The write may have been applied, unless the cause proves otherwise.
func unsure(p *problem, cause error) *problem {
	if !core.NotApplied(cause) {
		p.Applied = "unknown"
	}
	return p
}

func (x *effects) outcome(reply *effectReply, a *attempt) error {
	doubt, open := errors.AsType[*effect.InDoubtError](a.err)
	failed, isFailed := errors.AsType[*effect.FailedError](a.err)
	switch {
	case a.err == nil:
		reply.State, reply.payload = effectDone, newPayload(a.result)
	case errors.Is(a.err, effect.ErrNotKept):
		reply.State, reply.NotKept = effectDone, true
	case isFailed:
		reply.State, reply.Reason = effectFailed, failed.Effect.Reason
	case errors.Is(a.err, core.ErrLost), errors.Is(a.err, core.ErrClosed):
		return unsure(notHeldProblem(x.lease.Shard()), a.err)
	case open:
		reply.setOpen(&doubt.Effect)
	case errors.Is(a.err, effect.ErrFull):
		return refuse(http.StatusConflict, codeFull, "%v", a.err)
	case errors.Is(a.err, core.ErrUnknown): // the write of the intent is in doubt: the client has not begun the effect
		return unsure(refuse(http.StatusServiceUnavailable, codeStore, "%v", a.err), a.err)
	default:
		return a.err
	}
	return nil
}

// A client's finding about an effect in doubt becomes a rule.
func (x *effects) resolved(ctx context.Context, key, doubt string, rule *control.Rule) (effectReply, error) {
	l, err := x.open()
	if err != nil {
		return effectReply{}, err
	}
	e, err := l.Lookup(ctx, key)
	switch {
	case err != nil:
		return effectReply{}, err
	case e == nil || e.State != effect.InDoubt && e.State != effect.Repeat || doubtName(e) != doubt:
		return effectReply{}, refuse(http.StatusPreconditionFailed, codeConflict,
			"effect %q is not in the doubt %.60q: it was decided or attempted since, or never begun: list the effects", key, doubt)
	}
	rule.Kind, rule.Shards, rule.Effect, rule.At = control.Resolve, x.lease.Shard(), key, time.Now()
	rule.Began, rule.Repeats = e.Began, e.Repeats
	return x.begin(ctx, key, rule)
}

// The list contains only open effects without an attempt in progress.
func (x *effects) list(ctx context.Context) (out effectsReply, err error) {
	open, err := effect.ReadOpen(ctx, x.s.b, x.lease.Shard(), listedEffects+leaseAttempts)
	if err != nil && (open == nil || !errors.Is(err, core.ErrDamaged)) {
		return out, err
	}
	if err != nil {
		out.Unread = cut(err.Error(), maxMessage)
	}
	out.Effects = []effectReply{}
	x.mu.Lock()
	defer x.mu.Unlock()
	for i := range open {
		if x.attempts[open[i].Key] == nil && len(out.Effects) < listedEffects {
			if open[i].State == effect.Begun {
				open[i].Reason = fmt.Sprintf("the lease with token %d was over before its client ended it", open[i].Token)
				if open[i].Token == x.lease.Token() {
					open[i].Reason = "its end was not written"
				}
			}
			reply := x.reply(open[i].Key)
			reply.setOpen(&open[i])
			out.Effects = append(out.Effects, reply)
		}
	}
	return out, nil
}

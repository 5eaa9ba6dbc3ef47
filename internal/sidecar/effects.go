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

// Limits of effects.
const (
	leaseAttempts = 64   // concurrent, of one lease
	mostAttempts  = 1024 // concurrent, of all leases
	attemptTime   = 5 * time.Minute
	listedEffects = 1000 // in one answer
)

// States of an effect, as clients see them.
const (
	effectGo       = "go"        // this client makes it now
	effectUnderWay = "under_way" // another attempt has not ended
	effectDone     = "done"
	effectFailed   = "failed"
	effectRepeat   = "repeat" // the next begin makes it
	effectInDoubt  = "in_doubt"
)

// An effectReply is an effect as clients see it.
type effectReply struct {
	Key     string `json:"key"`
	ID      string `json:"id"` // the idempotency key
	State   string `json:"state"`
	Attempt string `json:"attempt,omitempty"` // with the state go
	Doubt   string `json:"doubt,omitempty"`   // names a state that can be resolved
	Reason  string `json:"reason,omitempty"`
	payload
	NotKept bool `json:"not_kept,omitempty"`
}

// doubtName names the state of an open effect. A decision changes the name.
func doubtName(e *effect.Effect) string {
	return fmt.Sprintf("%x.%d", e.Began.UnixNano(), e.Repeats)
}

// setOpen fills in e, an open effect without an attempt.
func (r *effectReply) setOpen(e *effect.Effect) {
	r.State, r.Doubt, r.Reason = effectInDoubt, doubtName(e), e.Reason
	if e.State == effect.Repeat {
		r.State = effectRepeat
	}
}

// effects are the effects of one lease. Their function runs in the client, and the part here
// waits until the client ends it. All methods are safe for concurrent use.
type effects struct {
	s     *Server
	lease *core.Lease
	ctx   context.Context // ends when the lease is given back or lost
	stop  context.CancelFunc

	opening sync.Mutex
	ledger  *effect.Ledger // nil until the first request; under opening

	mu       sync.Mutex
	attempts map[string]*attempt // by the effect's key
}

// An attempt is one client's attempt of an effect, from begin to end.
type attempt struct {
	id    string
	key   string
	rule  *control.Rule        // what the client found out before it began, or nil
	tells chan struct{}        // the client that begins receives from it
	gone  chan struct{}        // closed when that client no longer waits
	done  chan struct{}        // closed after result and err are set
	says  chan effect.Decision // the client's report, at most one; State is empty if the client does not know
	ended bool                 // says has been sent to; under effects.mu
	after effect.Decision      // the report, if it is not done; under effects.mu

	result []byte
	err    error
}

func newEffects(s *Server, l *core.Lease) *effects {
	x := &effects{s: s, lease: l, attempts: make(map[string]*attempt)}
	x.ctx, x.stop = context.WithCancel(l.Context())
	return x
}

// leave ends all attempts, which leaves their effects in doubt. It returns when nothing writes any
// longer.
func (x *effects) leave() {
	x.stop()
	x.opening.Lock()
	defer x.opening.Unlock()
	if x.ledger != nil {
		x.ledger.Close()
	}
}

// open returns the lease's ledger. The first call opens it.
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

// rules returns the operators' decisions about effects, and the clients' findings.
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

// resolve returns what is known of an effect after an attempt that was not done. It knows
// nothing of effects that a previous leader left open. The ledger calls it on the attempt's
// goroutine.
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

// begin starts an attempt of an effect by this client. If the effect needs no attempt, or
// another attempt is under way, the reply says so.
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

// admit gives an attempt a place, unless its effect has another attempt.
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

// run runs an attempt from its place to its outcome.
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

// await lets the client make the effect, and waits for its report.
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

// end passes on the client's report of its attempt, and waits for the outcome.
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

// unwritten returns the error of an attempt whose outcome may not be in the store.
func unwritten(key string, cause error) *problem {
	return unsure(refuse(http.StatusGatewayTimeout, codeUnknown,
		"effect %q: its end may not be written: begin it again, or list the effects: %v", key, cause), nil)
}

// unsure marks a problem as possibly written, unless the cause rules that out.
func unsure(p *problem, cause error) *problem {
	if !core.NotApplied(cause) {
		p.Applied = "unknown"
	}
	return p
}

// outcome adds the outcome of an attempt to a reply.
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
	case errors.Is(a.err, core.ErrUnknown): // of the intent: the client has not begun to make it
		return unsure(refuse(http.StatusServiceUnavailable, codeStore, "%v", a.err), a.err)
	default:
		return a.err
	}
	return nil
}

// resolved applies a rule with a client's finding to an effect in doubt.
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

// list returns the first open effects without an attempt.
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

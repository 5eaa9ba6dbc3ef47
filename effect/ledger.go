package effect

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/core/control"
	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/keyspace"
)

// A Ledger performs the effects of one shard under one lease. All methods are safe for concurrent
// use.
type Ledger struct {
	lease *core.Lease
	o     *Options
	w     *outbox

	places  chan struct{} // one for each effect that is attempted or decided
	closing chan struct{}
	failed  atomic.Bool    // since keep last looked, work has failed that must be tried again
	flown   sync.WaitGroup // flights, and the goroutine that starts the flights of Open
	kept    sync.WaitGroup // keep

	obeyed map[string]control.Rule // by effect; used by keep only

	mu      sync.Mutex
	closed  bool
	flights map[string]*flight
	nested  int             // flights without a place
	idle    map[string]idle // open effects that are not attempted
	later   map[string]late // open effects to look at again
}

// The zero value marks an effect that must be decided again because Resolve failed or the outcome
// is unknown. Any other value contains an effect whose outcome could not be written.
type late struct {
	e     Effect
	cause error // the error of fn
}

// A flight is an effect that one goroutine attempts or decides. Calls to Do can wait for it.
type flight struct {
	ledger *Ledger
	key    string
	fn     Func            // nil if the effect is decided but not attempted
	ctx    context.Context // the context of the Do that began the flight; only its values are used

	met     *Effect       // the open effect at the last call of fn or Resolve; used by its goroutine only
	waiters int           // guarded by Ledger.mu, like begun
	begun   bool          // the flight has got its place, or was dropped
	dropped chan struct{} // closed if the last waiter leaves before the flight has begun
	on      []*flight     // the flights that its function waits for
	done    chan struct{}
	out     outcome // set before done is closed
}

type outcome struct {
	result []byte
	err    error
	again  bool // a decision allows the next Do to attempt the effect
}

// Open returns a Ledger for a lease. The lease's handler calls Open when it begins. Open lists the
// effects that former leaders left open, in one read. In the background, the Ledger then reads each
// effect's record and, if Options.Resolve is set, decides the effect. A Do with the same key waits
// for the decision. A lease can have only one open Ledger. The handler's context, ctx, limits only
// Open.
//
// The error matches core.ErrInvalid if options are outside their limits, or if Scope names a shard
// of a keyspace. The error also matches core.ErrInvalid for a lock's lease (package lock), because
// effects outlast such a lease. If the lease is over, the error matches core.ErrLost. Any other
// error means that Open could not read the store.
func Open(ctx context.Context, lease *core.Lease, o *Options) (*Ledger, error) {
	if lease == nil {
		return nil, invalid("the lease is nil: call Open in a handler")
	}
	if driver.IsLock(core.ShardID(lease.Shard())) {
		return nil, invalid("the lease is that of a lock, which nobody need have again: contend for a shard")
	}
	resolved, err := o.resolve(keyspace.Of(ctx), lease)
	if err != nil {
		return nil, err
	}
	l := &Ledger{lease: lease, o: resolved, places: make(chan struct{}, resolved.Concurrent), closing: make(chan struct{}),
		flights: make(map[string]*flight), idle: make(map[string]idle), later: make(map[string]late)}
	open, err := l.open(ctx)
	switch {
	case open == nil:
		return nil, err
	case err != nil:
		l.o.logError(err)
	}
	for i := range open {
		l.leave(open[i])
	}
	if len(open) > 0 && (o == nil || o.Rules == nil) {
		awaitRules(ctx, lease)
	}
	l.o.Stats.open(l)
	l.w = newOutbox(l)
	go l.w.write()
	l.kept.Go(l.keep)
	l.review(open)
	return l, nil
}

// awaitRules waits, for at most rulesWait, until the member has read the operators' rules. An
// effect that a rule decides is neither passed to Resolve nor attempted again.
func awaitRules(ctx context.Context, lease *core.Lease) {
	ctx, cancel := context.WithTimeout(ctx, rulesWait)
	defer cancel()
	for lease.Rules() == nil && lease.Err() == nil && ctx.Err() == nil {
		time.Sleep(rulesWait / 1000)
	}
}

// Close ends the background work, and waits until no effect is in progress. The ledger no longer
// attempts effects that are waiting for their turn or for their next attempt. Close returns when
// every fn and Resolve has returned. Their contexts end after Deadline, or when the lease may no
// longer be used. The handler calls Close before it returns, because the store refuses writes under
// a released lease. A second call to Close also waits.
func (l *Ledger) Close() {
	l.mu.Lock()
	first := !l.closed
	if first {
		l.closed = true
		close(l.closing)
	}
	l.mu.Unlock()
	l.flown.Wait()
	l.o.Stats.close(l)
	l.kept.Wait()
	if first {
		l.w.close()
	}
	<-l.w.ended
}

// Do performs the effect with the given key once, and returns its result. If the effect is already
// done, under this or an earlier lease, Do returns the stored result without calling fn. Concurrent
// calls with the same key share one execution, which runs the first call's fn.
//
// Do writes the intent to the store under the fence, calls fn, and writes the result before it
// returns. Effects that run concurrently share these writes. A separate goroutine runs fn. The
// context passed to fn carries ctx's values, and ends after Options.Deadline, or when the lease may
// no longer be used. It does not end with ctx, because ctx limits only how long this call waits. Do
// does not recover a panic in fn.
//
// If fn calls Do with fn's own context, the inner effect is nested. A nested effect does not wait
// for its turn (Options.Concurrent), and begins even after Close was called. If an effect would
// have to wait for itself, the error matches core.ErrInvalid.
//
// The error matches
//
//   - ErrFailed: the effect did not happen, or was compensated, and is not attempted again.
//   - ErrInDoubt: the outcome is unknown, or the result could not be written. While the lease is
//     valid, the ledger writes the result later.
//   - ErrNotKept: the effect happened, but its result was not kept.
//   - ErrFull, core.ErrInvalid, core.ErrClosed after Close: nothing happened.
//   - core.ErrRetry: nothing happened, and the same call may succeed later, on this leader or the
//     next.
//   - core.ErrUnknown, with ctx's error: ctx ended while the effect was in progress.
//   - core.ErrLost: the lease is over. If the error does not match ErrInDoubt, fn was not called.
func (l *Ledger) Do(ctx context.Context, key string, fn Func) ([]byte, error) {
	if err := CheckKey(key); err != nil {
		return nil, err
	}
	if fn == nil {
		return nil, invalid("the function of effect %q is nil", key)
	}
	for {
		if err := l.lease.Err(); err != nil {
			return nil, fmt.Errorf("tenure: effect %q: not begun: %w", key, err)
		}
		if ctx.Err() != nil {
			return nil, fmt.Errorf("tenure: effect %q: not begun: %w: %w", key, core.ErrRetry, context.Cause(ctx))
		}
		f, err := l.board(ctx, key, fn)
		if err != nil {
			return nil, err
		}
		if err := l.await(ctx, f); err != nil {
			return nil, err
		}
		if f.fn == nil && f.out.again {
			continue // the effect was decided, and this call attempts it
		}
		return slices.Clone(f.out.result), f.out.err
	}
}

// board joins a key's flight. If the key has no flight, board starts one.
func (l *Ledger) board(ctx context.Context, key string, fn Func) (*flight, error) {
	within, _ := ctx.Value(flightKey{}).(*flight)
	l.mu.Lock()
	defer l.mu.Unlock()
	f, nested := l.flights[key], within != nil && !within.landed()
	ours := nested && within.ledger == l
	switch {
	case l.closed && !ours:
		return nil, fmt.Errorf("tenure: effect %q: not begun: %w: the ledger", key, core.ErrClosed)
	case ours && f != nil && f.waits(within):
		return nil, invalid("effect %q: not begun: it waits for effect %q, whose function calls Do with it", key, within.key)
	case nested && (f == nil || !f.begun) && l.nested >= maxConcurrent:
		return nil, fmt.Errorf("tenure: effect %q: not begun: %w: %d nested effects are under way", key, core.ErrRetry, l.nested)
	}
	begun := f != nil && (f.begun || !nested)
	if f == nil {
		f = l.newFlight(key)
		f.fn, f.ctx = fn, ctx
	}
	if !begun {
		if nested {
			l.nested++
		}
		l.flown.Go(func() { l.fly(f, nested) })
	}
	if ours {
		within.on = append(slices.DeleteFunc(within.on, (*flight).landed), f)
	}
	f.waiters++
	return f, nil
}

type flightKey struct{}

func (f *flight) landed() bool {
	select {
	case <-f.done:
		return true
	default:
		return false
	}
}

// The caller holds Ledger.mu.
func (f *flight) waits(other *flight) bool {
	return f == other || !f.landed() && slices.ContainsFunc(f.on, func(g *flight) bool { return g.waits(other) })
}

// The caller holds l.mu.
func (l *Ledger) newFlight(key string) *flight {
	f := &flight{ledger: l, key: key, ctx: context.Background(), dropped: make(chan struct{}), done: make(chan struct{})}
	l.flights[key] = f
	return f
}

func (l *Ledger) await(ctx context.Context, f *flight) error {
	select {
	case <-f.done:
		return nil
	case <-ctx.Done():
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-f.done:
		return nil
	default:
	}
	f.waiters--
	if f.waiters == 0 && !f.begun && f.fn != nil {
		f.begun = true
		delete(l.flights, f.key)
		close(f.dropped)
		return fmt.Errorf("tenure: effect %q: not begun: %w: %w", f.key, core.ErrRetry, context.Cause(ctx))
	}
	return fmt.Errorf("tenure: effect %q goes on without its caller: %w: %w", f.key, core.ErrUnknown, context.Cause(ctx))
}

// Unless the flight is nested, fly waits for a place. If the flight was not dropped during the
// wait, fly then performs or decides the effect.
func (l *Ledger) fly(f *flight, nested bool) {
	if nested {
		defer func() {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.nested--
		}()
	} else {
		select {
		case l.places <- struct{}{}:
			defer func() { <-l.places }()
		case <-f.dropped:
		case <-l.closing:
		case <-l.lease.Context().Done():
		}
	}
	l.mu.Lock()
	begun := f.begun
	f.begun = true
	l.mu.Unlock()
	if begun {
		return
	}
	defer l.land(f)
	if l.stopped() && (!nested || l.lease.Err() != nil) {
		f.out.err = l.unbegun(f)
		return
	}
	l.carry(f)
}

// carry performs or decides an effect, and sets the outcome even if the effect's function ends the
// goroutine (runtime.Goexit).
func (l *Ledger) carry(f *flight) {
	returned := false
	defer func() { // calls no application code, because it also runs during panics, which end the process
		if returned {
			return
		}
		f.out.err = fmt.Errorf("tenure: effect %q: %w: its goroutine ended", f.key, core.ErrUnknown)
		if e := f.met; e != nil {
			l.postpone(*e, nil)
			l.leave(*e)
			e.State, e.Reason = InDoubt, "its function ended its goroutine"
			f.out.err = &InDoubtError{Shard: l.lease.Shard(), Effect: *e}
		}
	}()
	if f.fn != nil {
		f.out = l.make(f)
	} else {
		f.out = l.revisit(f)
	}
	returned = true
}

func (l *Ledger) unbegun(f *flight) error {
	why := l.lease.Err()
	if f.fn == nil { // a former leader began the effect
		return &InDoubtError{Shard: l.lease.Shard(), lost: why != nil,
			Effect: Effect{Key: f.key, ID: ID(l.o.Scope, f.key), State: InDoubt, Reason: "not decided before the ledger was closed"}}
	}
	if why == nil {
		why = fmt.Errorf("%w: the ledger", core.ErrClosed)
	}
	return fmt.Errorf("tenure: effect %q: not begun: %w", f.key, why)
}

func (l *Ledger) land(f *flight) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.flights[f.key] == f {
		delete(l.flights, f.key)
	}
	close(f.done)
}

// Lookup returns an effect's state. The call costs one read, or two reads if the effect may be in
// doubt. If the effect was never begun or is no longer kept, Lookup returns nil and no error. An
// idempotent consumer calls Lookup to find out whether a message has been processed. An effect that
// a former leader left open is InDoubt until Resolve or a person decides it.
func (l *Ledger) Lookup(ctx context.Context, key string) (*Effect, error) {
	if err := CheckKey(key); err != nil {
		return nil, err
	}
	e, err := l.record(ctx, key)
	if err != nil || e == nil || !l.idling(e) {
		return e, err
	}
	was := *e
	if e, err = l.record(ctx, key); err == nil && e != nil {
		l.judge(e, &was)
	}
	return e, err
}

// InDoubt returns the open effects that are not currently being attempted, sorted by key. There are
// at most MaxInDoubt plus Concurrent such effects, plus the number of nested effects (see Do). If
// some records cannot be read, InDoubt returns the other effects, and the error matches
// core.ErrDamaged.
func (l *Ledger) InDoubt(ctx context.Context) ([]Effect, error) {
	all, err := l.open(ctx)
	idle := make(map[string]*Effect)
	for i := range all {
		if l.idling(&all[i]) {
			idle[all[i].Key] = &all[i]
		}
	}
	if len(idle) > 0 {
		all, err = l.open(ctx)
	}
	var doubts []Effect
	for i := range all {
		if l.judge(&all[i], idle[all[i].Key]); all[i].State != Begun {
			doubts = append(doubts, all[i])
		}
	}
	return doubts, err
}

// idling reports whether an effect in state Begun is not being attempted. The effect may have ended
// since its record was read.
func (l *Ledger) idling(e *Effect) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	f := l.flights[e.Key]
	return e.State == Begun && (f == nil || f.fn == nil)
}

// judge marks an effect as in doubt if its record has not changed since before idling reported that
// no call attempts the effect. An attempt that ended before that report would have replaced the
// record.
func (l *Ledger) judge(e, was *Effect) {
	if was != nil && e.State == Begun && e.Token == was.Token && e.Repeats == was.Repeats && e.Began.Equal(was.Began) {
		e.State, e.Reason = InDoubt, l.unended(e)
	}
}

func (l *Ledger) unended(e *Effect) string {
	if e.Token == l.lease.Token() {
		return "its outcome was not written"
	}
	return fmt.Sprintf("the lease with token %d ended before the outcome was written", e.Token)
}

func (l *Ledger) record(ctx context.Context, key string) (*Effect, error) {
	item, err := l.lease.Get(ctx, recordPrefix+key)
	if err != nil || item == nil {
		return nil, err
	}
	e, err := decode(item, recordPrefix, l.o.Scope)
	if err != nil {
		return nil, err
	}
	return &e, nil
}

// The slice is nil only if open could not read the store.
func (l *Ledger) open(ctx context.Context) ([]Effect, error) {
	items, err := l.lease.List(ctx, openPrefix, mostInDoubt+2*maxConcurrent, maxOpen)
	if err != nil {
		return nil, fmt.Errorf("tenure: read the open effects: %w", err)
	}
	return decodeAll(items, l.o.Scope)
}

// decodeAll skips records that it cannot read. The error lists the first three of them.
func decodeAll(items []core.Item, scope string) ([]Effect, error) {
	all := make([]Effect, 0, len(items))
	var errs []error
	for i := range items {
		e, err := decode(&items[i], openPrefix, scope)
		switch {
		case err == nil && e.State.Open():
			all = append(all, e)
		case err != nil && len(errs) < 3:
			errs = append(errs, err)
		}
	}
	return all, errors.Join(errs...)
}

// ReadOpen returns up to limit (1 to 10,000) effects of a shard that have not ended, sorted by key.
// ReadOpen is for tools. ReadOpen needs no lease, and calls the store once. An effect is in doubt
// if it is Begun under a token lower than the token of the shard's current lease. Under the current
// token, an effect may be in progress. If some records cannot be read, ReadOpen returns the other
// effects, and the error matches core.ErrDamaged.
func ReadOpen(ctx context.Context, b core.Backend, shard string, limit int) ([]Effect, error) {
	if limit < 1 || limit > mostInDoubt {
		return nil, invalid("reading %d effects is outside 1 to %d", limit, mostInDoubt)
	}
	items, err := b.List(ctx, core.ShardID(shard), openPrefix, limit, maxOpen)
	if err != nil {
		return nil, fmt.Errorf("tenure: read the open effects of shard %q: %w", shard, err)
	}
	return decodeAll(items, b.Info().Namespace+"/"+shard)
}

// Read returns the store's record of one effect of a shard, or nil and no error if there is no
// record. Read needs no lease. See ReadOpen.
func Read(ctx context.Context, b core.Backend, shard, key string) (*Effect, error) {
	if err := CheckKey(key); err != nil {
		return nil, err
	}
	item, err := b.Get(ctx, core.ShardID(shard), recordPrefix+key)
	if err != nil {
		return nil, fmt.Errorf("tenure: read effect %q of shard %q: %w", key, shard, err)
	}
	if item == nil {
		return nil, nil //nolint:nilnil // as documented, like Lease.Get
	}
	e, err := decode(item, recordPrefix, b.Info().Namespace+"/"+shard)
	if err != nil {
		return nil, err
	}
	return &e, nil
}

// now returns the wall clock's time in the stored form.
func now() time.Time { return time.Now().UTC().Round(0) }

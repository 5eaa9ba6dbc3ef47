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

// A Ledger makes the effects of one shard under one lease. All methods are safe for concurrent
// use.
type Ledger struct {
	lease *core.Lease
	o     *Options
	w     *outbox

	places  chan struct{} // one for each effect that is attempted or decided
	closing chan struct{}
	failed  atomic.Bool    // something that is tried again, since keep looked
	flown   sync.WaitGroup // flights, and the goroutine that starts those of Open
	kept    sync.WaitGroup // keep

	obeyed map[string]control.Rule // by effect; of keep only

	mu      sync.Mutex
	closed  bool
	flights map[string]*flight
	idle    map[string]idle // open effects that nobody attempts
	later   map[string]late // open effects to look at again
}

// late is an effect whose outcome could not be written. It is zero where that is to be decided
// anew, as Resolve failed, or as nobody knows the outcome.
type late struct {
	e     Effect
	cause error // what fn returned
}

// flight is an effect that is attempted or decided, by one goroutine, and those that wait for
// it.
type flight struct {
	key string
	fn  Func            // nil: it is only decided
	ctx context.Context // of the Do that began it, for its values

	met     *Effect       // the open effect, as fn or Resolve was last called for it; its goroutine's
	waiters int           // under Ledger.mu, as begun
	begun   bool          // it has its place
	dropped chan struct{} // closed when nobody waits for it before it has begun
	done    chan struct{}
	out     outcome // set before done is closed
}

// outcome is what became of a flight.
type outcome struct {
	result []byte
	err    error
	again  bool // it was decided that the next Do attempts it
}

// Open makes a Ledger on a lease, at the beginning of its handler, and reads which effects the
// former leaders left open, in one read. In the background it then reads the record of each, and
// decides about it if Options.Resolve is set; a Do with such a key waits for that. A lease has one
// Ledger at a time. Ctx is the handler's, and bounds Open only.
//
// The error matches core.ErrInvalid for options outside their bounds, for a Scope that names a shard of
// a keyspace, and for a lock's lease (package lock), because effects outlast it. It matches core.ErrLost
// if the lease is over. Otherwise the store could not be read.
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
		l.o.OnError(err)
	}
	for i := range open {
		l.leave(open[i])
	}
	l.o.Stats.open(l)
	l.w = newOutbox(l)
	go l.w.write()
	l.kept.Go(l.keep)
	l.review(open)
	return l, nil
}

// Close waits until no effect is under way, and ends what runs in the background. Effects that
// wait for a turn or between two attempts do not begin another one. It returns when every fn
// and Resolve has returned, whose ctx ends after Deadline, and when the lease may not be used.
// The handler calls it before it returns: what is done under a lease that was given back is
// refused. A second Close waits as well.
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

// Do makes the effect key once, and returns its result. If it was made before, under this
// lease or a former one, Do returns what it returned then, and fn is not called. Calls with
// the same key share one execution, by the fn of the first.
//
// fn is called after the intent is in the store, under the fence, and its result is written
// before Do returns: two fenced writes, which effects that run at once share. fn runs in its
// own goroutine, with a context that has the values of ctx, and ends after Options.Deadline
// and when the lease may not be used. It does not end with ctx, which bounds the wait of this
// call only. Panics of fn are not recovered.
//
// The error matches
//
//   - ErrFailed: it did not happen, or was compensated, and is not attempted again.
//   - ErrInDoubt: nobody knows; also where the result could not be written. While the lease is
//     valid the ledger writes it later.
//   - ErrNotKept: it happened; see there.
//   - ErrFull, core.ErrInvalid, core.ErrClosed after Close: nothing happened.
//   - core.ErrRetry: nothing happened; the same call may succeed later, here or at the next
//     leader.
//   - core.ErrUnknown, with ctx's error: ctx ended while the effect was under way.
//   - core.ErrLost: the lease is over. Unless the error matches ErrInDoubt, fn was not called.
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
			continue // it was decided, and this call makes the attempt
		}
		return slices.Clone(f.out.result), f.out.err
	}
}

// board joins the flight of a key, or starts it.
func (l *Ledger) board(ctx context.Context, key string, fn Func) (*flight, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, fmt.Errorf("tenure: effect %q: not begun: %w: the ledger", key, core.ErrClosed)
	}
	f := l.flights[key]
	if f == nil {
		f = l.newFlight(key)
		f.fn, f.ctx = fn, ctx
		l.flown.Go(func() { l.fly(f) })
	}
	f.waiters++
	return f, nil
}

// newFlight registers a flight. l.mu is held.
func (l *Ledger) newFlight(key string) *flight {
	f := &flight{key: key, ctx: context.Background(), dropped: make(chan struct{}), done: make(chan struct{})}
	l.flights[key] = f
	return f
}

// await waits for a flight until ctx ends.
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
		delete(l.flights, f.key)
		close(f.dropped)
		return fmt.Errorf("tenure: effect %q: not begun: %w: %w", f.key, core.ErrRetry, context.Cause(ctx))
	}
	return fmt.Errorf("tenure: effect %q goes on without its caller: %w: %w", f.key, core.ErrUnknown, context.Cause(ctx))
}

// fly takes a place, and makes or decides an effect.
func (l *Ledger) fly(f *flight) {
	defer l.land(f)
	select {
	case l.places <- struct{}{}:
		defer func() { <-l.places }()
	case <-f.dropped:
		return
	case <-l.closing:
	case <-l.lease.Context().Done():
	}
	if l.stopped() {
		f.out.err = l.unbegun(f)
		return
	}
	l.mu.Lock()
	select {
	case <-f.dropped:
		l.mu.Unlock()
		return
	default:
		f.begun = true
	}
	l.mu.Unlock()
	l.carry(f)
}

// carry makes or decides an effect, also one whose function ends its goroutine (runtime.Goexit).
func (l *Ledger) carry(f *flight) {
	returned := false
	defer func() { // calls nothing of the application: it runs in panics as well, which end the process
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

// unbegun is the error of an effect that did not get its place before the end.
func (l *Ledger) unbegun(f *flight) error {
	why := l.lease.Err()
	if f.fn == nil { // a former leader began it
		return &InDoubtError{Shard: l.lease.Shard(), lost: why != nil,
			Effect: Effect{Key: f.key, ID: ID(l.o.Scope, f.key), State: InDoubt, Reason: "not decided before the ledger was closed"}}
	}
	if why == nil {
		why = fmt.Errorf("%w: the ledger", core.ErrClosed)
	}
	return fmt.Errorf("tenure: effect %q: not begun: %w", f.key, why)
}

// land ends a flight.
func (l *Ledger) land(f *flight) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.flights[f.key] == f {
		delete(l.flights, f.key)
	}
	close(f.done)
}

// Lookup returns what is known of an effect, in one read; nil without an error if it was never
// begun, or is not kept any more. An idempotent consumer asks it whether a message is done.
// What a former leader began is InDoubt if nobody has decided about it.
func (l *Ledger) Lookup(ctx context.Context, key string) (*Effect, error) {
	if err := CheckKey(key); err != nil {
		return nil, err
	}
	e, err := l.record(ctx, key)
	if err != nil || e == nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.judge(e)
	return e, nil
}

// InDoubt returns the open effects that nobody attempts at present, by key, at most MaxInDoubt
// and Concurrent in all. The error matches core.ErrDamaged beside the others where some
// records cannot be read.
func (l *Ledger) InDoubt(ctx context.Context) ([]Effect, error) {
	all, err := l.open(ctx)
	l.mu.Lock()
	defer l.mu.Unlock()
	var doubts []Effect
	for i := range all {
		if l.judge(&all[i]); all[i].State != Begun {
			doubts = append(doubts, all[i])
		}
	}
	return doubts, err
}

// judge calls an effect that was begun, and that nobody attempts, what it is. l.mu is held.
func (l *Ledger) judge(e *Effect) {
	if f := l.flights[e.Key]; e.State == Begun && (f == nil || f.fn == nil) {
		e.State, e.Reason = InDoubt, l.unended(e)
	}
}

// unended is why an effect that was begun is in doubt.
func (l *Ledger) unended(e *Effect) string {
	if e.Token == l.lease.Token() {
		return "its outcome was not written"
	}
	return fmt.Sprintf("the lease with token %d ended before the outcome was written", e.Token)
}

// record reads the record of an effect; nil if there is none.
func (l *Ledger) record(ctx context.Context, key string) (*Effect, error) {
	item, err := l.lease.Get(ctx, recordPrefix+key)
	if err != nil || item == nil {
		return nil, err
	}
	e, err := decode(item, recordPrefix, l.o.Scope)
	return &e, err
}

// open reads the open effects; nil only if that failed.
func (l *Ledger) open(ctx context.Context) ([]Effect, error) {
	items, err := l.lease.List(ctx, openPrefix, MaxMaxInDoubt+MaxConcurrent)
	if err != nil {
		return nil, fmt.Errorf("tenure: read the open effects: %w", err)
	}
	return decodeAll(items, l.o.Scope)
}

// decodeAll decodes the index of open effects. What cannot be read is left out, and the error
// names the first.
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

// ReadOpen returns the effects of a shard that have not ended, by key, the first limit of them
// (1 to 10,000), for tools: it needs no lease, and asks the store once. One that is Begun
// under a token below that of the shard's present lease is in doubt; one under the present
// lease may be under way. The error matches core.ErrDamaged beside the others where some records
// cannot be read.
func ReadOpen(ctx context.Context, b core.Backend, shard string, limit int) ([]Effect, error) {
	if limit < 1 || limit > MaxMaxInDoubt {
		return nil, invalid("reading %d effects is outside 1 to %d", limit, MaxMaxInDoubt)
	}
	items, err := b.List(ctx, core.ShardID(shard), openPrefix, limit)
	if err != nil {
		return nil, fmt.Errorf("tenure: read the open effects of shard %q: %w", shard, err)
	}
	return decodeAll(items, b.Info().Namespace+"/"+shard)
}

// Read returns what the store knows of one effect of a shard; nil without an error if it knows
// nothing. It needs no lease. See ReadOpen.
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

// now is the wall clock, as it is stored.
func now() time.Time { return time.Now().UTC().Round(0) }

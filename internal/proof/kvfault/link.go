// Package kvfault simulates a faulty network between a backend of package kv and its store, for
// tests. A [Link] wraps any kv.Store and loses, holds, repeats or fails calls of chosen kinds. The
// package starts no goroutine and waits only on channels and contexts, so it works under
// testing/synctest.
package kvfault

import (
	"context"
	"errors"
	"sync"

	"github.com/tenure-go/tenure/backends/kv"
)

// Fault determines what a Link does with a call.
type Fault uint8

// These are the faults. A waiting call ends with its context's error. As on a network, the outcome
// of such a call is unknown.
const (
	None        Fault = iota
	DropRequest       // the call never reaches the store, and waits
	DropReply         // the call is applied, and waits
	HoldRequest       // the call waits until Deliver applies it, perhaps long after its caller gave up
	Duplicate         // the call is applied twice in succession, and the first reply is returned
	Replay            // the call is applied and answered, and Deliver applies it again
	Fail              // the call fails, with SetError's error if set, and is not applied
)

// Kind is a set of kinds of calls, with one bit for each kind.
type Kind uint8

// These are the kinds of calls. Under a fault that drops or holds calls, a watch delivers changes
// late, but never loses a change. Under Fail, the watch ends.
const (
	Heartbeat Kind = 1 << iota
	Write          // every Apply except heartbeats
	Read           // Get and Range
	Watch
	All = Heartbeat | Write | Read | Watch
)

// Link is a network with faults that a test can switch on and off. The zero value lets all calls
// pass. A Link is safe for concurrent use.
type Link struct {
	mu     sync.Mutex
	faults [8]Fault // by bit of Kind
	err    error
	held   []func()
	lost   int           // number of lost replies
	moved  chan struct{} // closed when a switch, the set of held calls, or lost changes
	counts [8]int
	// These are the running watches, which Fail ends.
	watches map[*watch]struct{}
}

type watch struct{ end context.CancelCauseFunc }

// Set sets the fault for later calls of the given kinds, and for running watches. The fault None
// ends any fault.
func (l *Link) Set(kinds Kind, f Fault) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for bit := range l.faults {
		if kinds&(1<<bit) != 0 {
			l.faults[bit] = f
		}
	}
	if kinds&Watch != 0 && f == Fail {
		for w := range l.watches {
			w.end(l.failure())
		}
	}
	l.move()
}

// Cut loses all requests, without an error, until Heal is called.
func (l *Link) Cut() { l.Set(All, DropRequest) }

// Heal lets all later calls pass. Calls that are already held stay held.
func (l *Link) Heal() { l.Set(All, None) }

// SetError makes calls of the given kinds fail with err. Running watches end with this error. If
// err is nil, calls fail with an error of this package.
func (l *Link) SetError(kinds Kind, err error) {
	l.mu.Lock()
	l.err = err
	l.mu.Unlock()
	l.Set(kinds, Fail)
}

// Count returns the number of calls of the given kinds, regardless of their outcome.
func (l *Link) Count(kinds Kind) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for bit, c := range l.counts {
		if kinds&(1<<bit) != 0 {
			n += c
		}
	}
	return n
}

// Held returns how many calls are waiting for Deliver.
func (l *Link) Held() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.held)
}

// AwaitHeld waits until at least n calls are waiting for Deliver.
func (l *Link) AwaitHeld(ctx context.Context, n int) error {
	return l.await(ctx, func() bool { return len(l.held) >= n })
}

// AwaitLost waits until the replies of at least n applied calls have been lost since the Link was
// created.
func (l *Link) AwaitLost(ctx context.Context, n int) error {
	return l.await(ctx, func() bool { return l.lost >= n })
}

func (l *Link) await(ctx context.Context, is func() bool) error {
	for {
		l.mu.Lock()
		done, moved := is(), l.waiting()
		l.mu.Unlock()
		if done {
			return nil
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Deliver applies all held calls in order, and returns their number. Callers that are still waiting
// get their replies.
func (l *Link) Deliver() int {
	l.mu.Lock()
	held := l.held
	l.held = nil
	l.move()
	l.mu.Unlock()
	for _, f := range held {
		f()
	}
	return len(held)
}

var (
	errClosed = errors.New("kvfault: the store was closed")
	errFailed = errors.New("kvfault: the call was made to fail")
)

func (l *Link) move() {
	if l.moved != nil {
		close(l.moved)
		l.moved = nil
	}
}

func (l *Link) waiting() <-chan struct{} {
	if l.moved == nil {
		l.moved = make(chan struct{})
	}
	return l.moved
}

// fault returns the fault for a kind of call, a channel that is closed when faults change, and the
// error of a failing call. For HoldRequest, it adds held to the held calls under the lock, and thus
// before the next Set or Deliver. A call held after the last Deliver would wait forever.
func (l *Link) fault(k Kind, held func()) (f Fault, moved <-chan struct{}, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for bit := range l.faults {
		if k != 1<<bit {
			continue
		}
		if l.faults[bit] == HoldRequest && held != nil {
			l.held = append(l.held, held)
			l.move()
		}
		return l.faults[bit], l.waiting(), l.failure()
	}
	return None, nil, nil
}

func (l *Link) failure() error {
	if l.err == nil {
		return errFailed
	}
	return l.err
}

func (l *Link) count(k Kind) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for bit := range l.counts {
		if k == 1<<bit {
			l.counts[bit]++
		}
	}
}

func (l *Link) track(w *watch, on bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !on {
		delete(l.watches, w)
		return
	}
	if l.watches == nil {
		l.watches = make(map[*watch]struct{})
	}
	l.watches[w] = struct{}{}
}

func (l *Link) lose() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lost++
	l.move()
}

func (l *Link) hold(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held = append(l.held, f)
	l.move()
}

// Wrap returns a store behind the link. A link can serve only one store.
func (l *Link) Wrap(s kv.Store) kv.Store {
	return &linked{Store: s, link: l, closed: make(chan struct{})}
}

type linked struct {
	kv.Store
	link   *Link
	closed chan struct{}
	once   sync.Once
}

func (s *linked) Apply(ctx context.Context, b *kv.Batch) (*kv.Outcome, error) {
	kind := Write
	if b.Heartbeat {
		kind = Heartbeat
	}
	// The caller may reuse its batch, so the network keeps a copy.
	sent := *b
	return pass(ctx, s, kind, func(ctx context.Context) (*kv.Outcome, error) { return s.Store.Apply(ctx, &sent) })
}

func (s *linked) Get(ctx context.Context, keys ...string) (*kv.Page, error) {
	return pass(ctx, s, Read, func(ctx context.Context) (*kv.Page, error) { return s.Store.Get(ctx, keys...) })
}

func (s *linked) Range(ctx context.Context, q kv.Range) (*kv.Page, error) {
	return pass(ctx, s, Read, func(ctx context.Context) (*kv.Page, error) { return s.Store.Range(ctx, q) })
}

func (s *linked) Watch(ctx context.Context, prefixes []string, after kv.Rev, fn func(kv.Rev, []kv.Change) error) error {
	s.link.count(Watch)
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	w := &watch{end: end}
	s.link.track(w, true) // before it reads the fault, so it misses no fault
	defer s.link.track(w, false)
	err := s.flows(ctx)
	if err == nil {
		err = s.Store.Watch(ctx, prefixes, after, func(rev kv.Rev, changes []kv.Change) error {
			if err := s.flows(ctx); err != nil {
				return err
			}
			return fn(rev, changes)
		})
	}
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}

// flows waits until the link lets watches through.
func (s *linked) flows(ctx context.Context) error {
	for {
		fault, moved, err := s.link.fault(Watch, nil)
		switch fault {
		case None, Duplicate, Replay:
			return nil
		case Fail:
			return err
		default: // a watch that is not answered
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return ctx.Err()
		case <-s.closed:
			return errClosed
		}
	}
}

func (s *linked) Close() error {
	s.once.Do(func() { close(s.closed) })
	return s.Store.Close()
}

// pass sends one call through the link.
func pass[T any](ctx context.Context, s *linked, kind Kind, call func(context.Context) (T, error)) (T, error) {
	l := s.link
	l.count(kind)
	var none, reply T
	var failed error
	done := make(chan struct{})
	fault, _, err := l.fault(kind, func() {
		reply, failed = call(context.WithoutCancel(ctx))
		close(done)
	})
	switch fault {
	case DropRequest:
		return none, s.wait(ctx, nil)
	case DropReply:
		_, _ = call(ctx)
		l.lose()
		return none, s.wait(ctx, nil)
	case HoldRequest:
		if err := s.wait(ctx, done); err != nil {
			return none, err
		}
		return reply, failed
	case Duplicate:
		reply, err := call(ctx)
		_, _ = call(ctx)
		return reply, err
	case Replay:
		reply, err := call(ctx)
		l.hold(func() { _, _ = call(context.WithoutCancel(ctx)) })
		return reply, err
	case Fail:
		return none, err
	default:
		return call(ctx)
	}
}

// wait returns nil when done is closed. If the caller gives up or the store is closed earlier, wait
// returns an error.
func (s *linked) wait(ctx context.Context, done <-chan struct{}) error {
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-s.closed:
		return errClosed
	}
}

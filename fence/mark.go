package fence

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/tenure-go/tenure/core/driver"
)

// Storage keeps the marks. Its methods are safe for concurrent use, and durable
// as far as the implementation says.
type Storage interface {
	// Raise stores f as the resource's mark if its token is greater than the
	// present one's, or if there is none, and returns the mark that is in force
	// then: in one atomic step. f was admitted if and only if it is that mark. After
	// an error the mark may have been raised or not.
	Raise(ctx context.Context, resource string, f driver.Fence) (Holder, error)
	// Load returns the resource's mark, the zero Holder if there is none.
	Load(ctx context.Context, resource string) (Holder, error)
}

// Options of a Mark. Nil works.
type Options struct {
	// OnRefused is told every refusal, with resource, holder, token and what refused
	// it, from the goroutine whose write was refused. It must return soon.
	OnRefused func(*RefusedError)
}

// Mark is the high-water mark of any number of resources. Safe for concurrent use.
type Mark struct {
	storage   Storage
	onRefused func(*RefusedError)
	refused   atomic.Uint64

	mu    sync.Mutex
	gates map[string]*gate // of resources with something running or waiting
}

// gate has what runs at a resource, or waits to.
type gate struct {
	running map[*effect]struct{}
	left    chan struct{} // closed when one leaves
}

type effect struct {
	fence  driver.Fence
	cancel context.CancelCauseFunc
}

// NewMark returns a Mark over a Storage, which stays the caller's.
func NewMark(s Storage, o *Options) *Mark {
	m := &Mark{storage: s, gates: make(map[string]*gate)}
	if o != nil {
		m.onRefused = o.OnRefused
	}
	return m
}

// Admit raises the resource's mark to f if it is higher, and returns nil if f is
// the mark then. Otherwise the error is a *RefusedError. It says nothing about a
// later instant: what follows it is not protected from a newer holder, unless the
// resource itself takes only one writer. See Do.
//
// An error that does not match driver.ErrFenced or driver.ErrInvalid comes from the
// Storage: the write must not go on, and may be tried again.
func (m *Mark) Admit(ctx context.Context, resource string, f driver.Fence) error {
	if err := check(resource, f); err != nil {
		return err
	}
	current, err := m.storage.Raise(ctx, resource, f)
	if err != nil {
		return fmt.Errorf("tenure: the mark of resource %q: %w", resource, err)
	}
	if current == f {
		return nil
	}
	return m.refuse(&RefusedError{Resource: resource, Fence: f, Current: current})
}

// Do admits f and then runs effect, in this goroutine. While it runs, a higher
// token of this resource is admitted, so that f and all lower ones are refused
// from then on, but its own Do or Seal waits until effect has returned; the context
// that effect is given ends then, with a *RefusedError as its cause. Effects under
// one fence run side by side.
//
// ctx bounds the wait, and is passed on. An error of effect is returned as it is.
func (m *Mark) Do(ctx context.Context, resource string, f driver.Fence, effect func(context.Context) error) error {
	ctx, leave, err := m.Enter(ctx, resource, f)
	if err != nil {
		return err
	}
	defer leave()
	return effect(ctx)
}

// Seal raises the resource's mark to f, and returns when no effect of a lower token
// runs in this process any more: what a new leader does at every resource before
// it announces itself. Errors are those of Admit, or ctx's while it waits; the mark
// is raised nevertheless then.
func (m *Mark) Seal(ctx context.Context, resource string, f driver.Fence) error {
	return m.Do(ctx, resource, f, func(context.Context) error { return nil })
}

// Current returns the resource's mark, the zero Holder if it has none.
func (m *Mark) Current(ctx context.Context, resource string) (Holder, error) {
	if err := CheckResource(resource); err != nil {
		return Holder{}, err
	}
	return m.storage.Load(ctx, resource)
}

// Refused is how many writes this Mark has refused by their fence.
func (m *Mark) Refused() uint64 { return m.refused.Load() }

func (m *Mark) refuse(e *RefusedError) error {
	m.refused.Add(1)
	if m.onRefused != nil {
		m.onRefused(e)
	}
	return e
}

// Enter is the beginning of Do, for an effect that is no function: leave ends it,
// and is to be called once. With an error there is nothing to leave.
func (m *Mark) Enter(ctx context.Context, resource string, f driver.Fence) (inside context.Context, leave func(), err error) {
	if err := check(resource, f); err != nil {
		return nil, nil, err
	}
	inside, cancel := context.WithCancelCause(ctx)
	e := &effect{fence: f, cancel: cancel}
	// It is counted before it is admitted: else a higher token could look between
	// the two, see nobody, and go on.
	m.mu.Lock()
	g := m.gates[resource]
	if g == nil {
		g = &gate{running: make(map[*effect]struct{}), left: make(chan struct{})}
		m.gates[resource] = g
	}
	g.running[e] = struct{}{}
	m.mu.Unlock()
	leave = func() { m.leave(resource, g, e) }

	if err := m.Admit(ctx, resource, f); err != nil {
		leave()
		return nil, nil, err
	}
	for {
		m.mu.Lock()
		lower := false
		for other := range g.running {
			if other.fence.Token < f.Token {
				lower = true
				other.cancel(&RefusedError{Resource: resource, Fence: other.fence, Current: f})
			}
		}
		left := g.left
		m.mu.Unlock()
		if !lower {
			return inside, leave, nil
		}
		select {
		case <-left:
		case <-ctx.Done():
			leave()
			return nil, nil, fmt.Errorf("tenure: resource %q: waiting for the effects of a lower token: %w", resource, ctx.Err())
		}
	}
}

func (m *Mark) leave(resource string, g *gate, e *effect) {
	e.cancel(nil)
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(g.running, e)
	close(g.left)
	g.left = make(chan struct{})
	if len(g.running) == 0 {
		delete(m.gates, resource)
	}
}

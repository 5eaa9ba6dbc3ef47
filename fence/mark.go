package fence

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/errtext"
)

// Storage keeps the marks. Tokens are compared within one namespace of Tenure only, so a
// resource belongs to one. A Storage's methods are safe for concurrent use, and durable
// as far as the implementation says.
type Storage interface {
	// Raise stores f as the resource's mark if its token is greater than the
	// present one's, or if there is none, and returns the mark that is in force
	// then: in one atomic step. f was admitted if and only if it is that mark. After
	// an error the mark may have been raised or not.
	Raise(ctx context.Context, resource string, f driver.Fence) (driver.Fence, error)
	// Load returns the resource's mark, or the zero Fence.
	Load(ctx context.Context, resource string) (driver.Fence, error)
}

const defaultWait = 10 * time.Second

// ErrBusy answers Do, Enter and Seal when effects of lower tokens have run for
// Options.Wait. The mark is raised, and nothing else was done: it may be tried again.
var ErrBusy = errors.New("effects of a lower token still run")

// Options of a Mark. Nil works.
type Options struct {
	// MayWrite reports whether the leases of a shard may write to a resource; others
	// are refused with a *ForeignError before the mark is looked at. It may be called
	// by several goroutines at once. Default: ByName.
	MayWrite func(shard driver.ShardID, resource string) bool
	// Wait bounds how long a token waits for effects of lower ones, which have been
	// cancelled: more than they take to end. Default 10 s.
	Wait time.Duration
	// OnRefused is called for every refusal, in the goroutine whose write was
	// refused. It must return soon.
	OnRefused func(*RefusedError)
}

// Mark is the high-water mark of any number of resources. Safe for concurrent use.
type Mark struct {
	storage   Storage
	mayWrite  func(driver.ShardID, string) bool
	wait      time.Duration
	onRefused func(*RefusedError)
	refused   atomic.Uint64

	mu    sync.Mutex
	gates map[string]*gate // of resources with something running or waiting
}

// gate holds the effects that run at a resource, or wait to.
type gate struct {
	running map[*effect]struct{}
	left    chan struct{} // closed when one leaves
}

type effect struct {
	fence  driver.Fence
	cancel context.CancelCauseFunc // of the effect's context
	// superseded ends when a higher token waits, or the effect has ended. Unlike the
	// effect's context it does not end with the caller's.
	superseded context.Context
	supersede  context.CancelFunc
	leave      func()
}

// ByName reports whether a resource bears the shard's name: "ledger" and "ledger/..."
// belong to shard "ledger".
func ByName(shard driver.ShardID, resource string) bool {
	rest, ok := strings.CutPrefix(resource, string(shard))
	return ok && (rest == "" || rest[0] == '/')
}

// NewMark returns a Mark over a Storage, which stays the caller's.
func NewMark(s Storage, o *Options) *Mark {
	m := &Mark{storage: s, gates: make(map[string]*gate), mayWrite: ByName, wait: defaultWait}
	if o != nil {
		m.onRefused = o.OnRefused
		if o.MayWrite != nil {
			m.mayWrite = o.MayWrite
		}
		if o.Wait > 0 {
			m.wait = o.Wait
		}
	}
	return m
}

// Admit raises the resource's mark to f if it is higher, and returns nil if f is the
// mark then. Otherwise the error is a *RefusedError, or a *ForeignError if leases of
// f's shard may not write to the resource at all. It says nothing about a later
// instant: a write after it is not protected from a newer holder, unless the resource
// itself takes only one writer. See Do.
//
// An error that does not match driver.ErrLost or driver.ErrInvalid comes from the
// Storage: the write must not go on, and may be tried again.
func (m *Mark) Admit(ctx context.Context, resource string, f driver.Fence) error {
	if err := m.check(resource, f); err != nil {
		return err
	}
	current, err := m.storage.Raise(ctx, resource, f)
	if err != nil {
		return errtext.Errorf("tenure: the mark of resource %q: %w", resource, err)
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
// ctx and Options.Wait bound the wait: an effect that does not end makes the error
// match ErrBusy. ctx is passed on. An error of effect is returned as it is.
func (m *Mark) Do(ctx context.Context, resource string, f driver.Fence, effect func(context.Context) error) error {
	ctx, leave, err := m.Enter(ctx, resource, f)
	if err != nil {
		return err
	}
	defer leave()
	return effect(ctx)
}

// Seal raises the resource's mark to f, and returns when no effect of a lower token
// runs in this process any more. A new leader calls it for every resource before it
// announces itself. Errors are those of Admit; or ErrBusy, or ctx's, while it
// waits: the mark is raised nevertheless then.
func (m *Mark) Seal(ctx context.Context, resource string, f driver.Fence) error {
	return m.Do(ctx, resource, f, func(context.Context) error { return nil })
}

// Current returns the resource's mark, the zero Fence if it has none.
func (m *Mark) Current(ctx context.Context, resource string) (driver.Fence, error) {
	if err := CheckResource(resource); err != nil {
		return driver.Fence{}, err
	}
	return m.storage.Load(ctx, resource)
}

// Refused is how many writes this Mark has refused by their fence.
func (m *Mark) Refused() uint64 { return m.refused.Load() }

func (m *Mark) check(resource string, f driver.Fence) error {
	if err := check(resource, f); err != nil {
		return err
	}
	if !m.mayWrite(f.Shard, resource) {
		return &ForeignError{Resource: resource, Fence: f}
	}
	return nil
}

func (m *Mark) refuse(e *RefusedError) error {
	m.refused.Add(1)
	if m.onRefused != nil {
		m.onRefused(e)
	}
	return e
}

// Enter is the beginning of Do, for an effect that is no function: leave ends it,
// and is to be called once. With an error there is nothing to leave.
func (m *Mark) Enter(
	ctx context.Context, resource string, f driver.Fence,
) (inside context.Context, leave func(), err error) {
	inside, e, err := m.enter(ctx, resource, f)
	if err != nil {
		return nil, nil, err
	}
	return inside, e.leave, nil
}

func (m *Mark) enter(
	ctx context.Context, resource string, f driver.Fence,
) (inside context.Context, e *effect, err error) {
	if err := m.check(resource, f); err != nil {
		return nil, nil, err
	}
	inside, cancel := context.WithCancelCause(ctx)
	e = &effect{fence: f, cancel: cancel}
	e.superseded, e.supersede = context.WithCancel(context.WithoutCancel(ctx))
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
	e.leave = func() { m.leave(resource, g, e) }

	if err := m.Admit(ctx, resource, f); err != nil {
		e.leave()
		return nil, nil, err
	}
	if err := m.await(ctx, resource, g, f); err != nil {
		e.leave()
		return nil, nil, err
	}
	return inside, e, nil
}

// await ends the effects of lower tokens, and returns when the last has left.
func (m *Mark) await(ctx context.Context, resource string, g *gate, f driver.Fence) error {
	var over <-chan time.Time
	for {
		m.mu.Lock()
		lower := false
		for other := range g.running {
			if other.fence.Token < f.Token {
				lower = true
				other.cancel(&RefusedError{Resource: resource, Fence: other.fence, Current: f})
				other.supersede()
			}
		}
		left := g.left
		m.mu.Unlock()
		if !lower {
			return nil
		}
		if over == nil {
			over = time.After(m.wait)
		}
		select {
		case <-left:
		case <-over:
			return fmt.Errorf("tenure: resource %q: %w after %v: have them end with their context", resource, ErrBusy,
				m.wait)
		case <-ctx.Done():
			return fmt.Errorf("tenure: resource %q: waiting for the effects of a lower token: %w", resource, ctx.Err())
		}
	}
}

func (m *Mark) leave(resource string, g *gate, e *effect) {
	e.cancel(nil)
	e.supersede()
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(g.running, e)
	close(g.left)
	g.left = make(chan struct{})
	if len(g.running) == 0 {
		delete(m.gates, resource)
	}
}

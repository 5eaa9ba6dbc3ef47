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

// Storage keeps the marks. Tokens are comparable only within one namespace of Tenure, so a resource
// belongs to one namespace. A Storage's methods are safe for concurrent use. Each implementation
// states how durable its marks are.
type Storage interface {
	// Raise stores f as the resource's mark if the resource has none or f's token is greater. In
	// the same atomic step, it returns the resulting mark. f was admitted if and only if f is the
	// returned mark. After an error, the mark may or may not have been raised.
	Raise(ctx context.Context, resource string, f driver.Fence) (driver.Fence, error)
	// Load returns the resource's mark, or the zero Fence.
	Load(ctx context.Context, resource string) (driver.Fence, error)
}

const defaultWait = 10 * time.Second

// ErrBusy is the error of Do, Enter and Seal if effects of lower tokens still run after
// Options.Wait. The mark was raised, and nothing else was done. The caller may try again.
var ErrBusy = errors.New("effects of a lower token still run")

// Options configure a Mark. A nil Options works.
type Options struct {
	// MayWrite reports whether the leases of a shard may write to a resource. If not, the Mark
	// refuses them with a *ForeignError before it reads the mark. Several goroutines may call it
	// concurrently. Default: ByName.
	MayWrite func(shard driver.ShardID, resource string) bool
	// Wait limits how long a token waits for effects of lower tokens, whose contexts it has
	// cancelled. Make Wait longer than these effects take to end. Default 10 s.
	Wait time.Duration
	// OnRefused is called for every refusal, in the goroutine whose write was refused. It must
	// return quickly.
	OnRefused func(*RefusedError)
}

// Mark keeps the high-water marks of any number of resources. It is safe for concurrent use.
type Mark struct {
	storage   Storage
	mayWrite  func(driver.ShardID, string) bool
	wait      time.Duration
	onRefused func(*RefusedError)
	refused   atomic.Uint64

	mu    sync.Mutex
	gates map[string]*gate // of resources with running or waiting effects
}

// gate holds the effects that run on a resource, or wait to run.
type gate struct {
	running map[*effect]struct{}
	left    chan struct{} // closed when an effect leaves
}

type effect struct {
	fence  driver.Fence
	cancel context.CancelCauseFunc // of the effect's context
	// superseded ends when a higher token waits, or the effect has ended. Unlike the effect's
	// context, it does not end with the caller's.
	superseded context.Context
	supersede  context.CancelFunc
	leave      func()
}

// ByName reports whether a resource has the shard's name: "ledger" and "ledger/..." belong to shard
// "ledger".
func ByName(shard driver.ShardID, resource string) bool {
	rest, ok := strings.CutPrefix(resource, string(shard))
	return ok && (rest == "" || rest[0] == '/')
}

// NewMark returns a Mark that uses a Storage, which the caller still owns.
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

// Admit raises the resource's mark to f if it is higher. If f is then the mark, Admit returns nil.
// Otherwise, the error is a *RefusedError, or a *ForeignError if leases of f's shard may not write
// to the resource at all. The answer holds for that instant only: a later write is not protected
// from a newer holder, unless the resource itself accepts only one writer. See Do.
//
// An error that matches neither driver.ErrLost nor driver.ErrInvalid comes from the Storage. The
// caller must not write, but may try again.
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

// Do admits f and then runs effect, in this goroutine. A higher token for this resource may be
// admitted while effect runs. From then on, f and all lower tokens are refused, and effect's
// context ends with a *RefusedError as its cause. The higher token's Do or Seal waits until effect
// has returned. Effects under one fence run concurrently.
//
// ctx and Options.Wait limit the wait. If effects of lower tokens do not end in time, the error
// matches ErrBusy. effect's context is a child of ctx. Do returns effect's error unchanged.
func (m *Mark) Do(ctx context.Context, resource string, f driver.Fence, effect func(context.Context) error) error {
	ctx, leave, err := m.Enter(ctx, resource, f)
	if err != nil {
		return err
	}
	defer leave()
	return effect(ctx)
}

// Seal raises the resource's mark to f, and returns when no effect of a lower token runs in this
// process. A new leader calls it for every resource before it announces itself. The error is that
// of Admit, ErrBusy, or ctx's error if ctx ends during the wait. In the last two cases, the mark is
// raised nevertheless.
func (m *Mark) Seal(ctx context.Context, resource string, f driver.Fence) error {
	return m.Do(ctx, resource, f, func(context.Context) error { return nil })
}

// Current returns the resource's mark, or the zero Fence if it has none.
func (m *Mark) Current(ctx context.Context, resource string) (driver.Fence, error) {
	if err := CheckResource(resource); err != nil {
		return driver.Fence{}, err
	}
	return m.storage.Load(ctx, resource)
}

// Refused returns the number of writes that this Mark has refused because of their fence.
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

// Enter begins an effect as Do does, for an effect that is not a function. The caller ends the
// effect with one call to leave. If Enter returns an error, leave is nil.
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
) (context.Context, *effect, error) {
	if err := m.check(resource, f); err != nil {
		return nil, nil, err
	}
	inside, cancel := context.WithCancelCause(ctx)
	e := &effect{fence: f, cancel: cancel}
	e.superseded, e.supersede = context.WithCancel(context.WithoutCancel(ctx))
	// Count the effect before it is admitted. Otherwise, a higher token could arrive between the
	// two steps, find no effect, and proceed.
	m.mu.Lock()
	g := m.gates[resource]
	if g == nil {
		g = &gate{running: make(map[*effect]struct{}), left: make(chan struct{})}
		m.gates[resource] = g
	}
	g.running[e] = struct{}{}
	m.mu.Unlock()
	e.leave = func() { m.leave(resource, g, e) }
	entered := false
	defer func() { // also if the Storage or a function of Options ends this goroutine
		if !entered {
			e.leave()
		}
	}()
	if err := m.Admit(ctx, resource, f); err != nil {
		return nil, nil, err
	}
	if err := m.await(ctx, resource, g, f); err != nil {
		return nil, nil, err
	}
	entered = true
	return inside, e, nil
}

// await cancels the effects of lower tokens, and returns when the last has left.
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

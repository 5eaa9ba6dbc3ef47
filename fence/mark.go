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

// Storage keeps marks. Tokens are comparable only within one namespace, so each resource belongs to
// one namespace. A Storage's methods are safe for concurrent use. Each implementation documents how
// durable its marks are.
type Storage interface {
	// Raise stores f as the resource's mark if the resource has no mark or f's token is higher. In
	// the same atomic step, Raise returns the resulting mark. If the returned mark is f, f was
	// admitted. Otherwise, f was refused. After an error, the mark may or may not have been raised.
	Raise(ctx context.Context, resource string, f driver.Fence) (driver.Fence, error)
}

const defaultWait = 10 * time.Second

// ErrBusy is the error that Do, Enter and Seal return if effects of lower tokens are still running
// after Options.Wait. The mark was raised, and nothing else was done. The caller may try again.
var ErrBusy = errors.New("effects of a lower token still run")

// Options configure a Mark. A nil *Options is valid.
type Options struct {
	// MayWrite reports whether the leases of a shard may write to a resource. If MayWrite returns
	// false, the Mark refuses the write with a *ForeignError before it reads the resource's mark.
	// Several goroutines may call MayWrite concurrently. Default: ByName.
	MayWrite func(shard driver.ShardID, resource string) bool
	// Wait limits how long a token waits for the effects of lower tokens, whose contexts have been
	// canceled. Wait must be longer than these effects take to end. Default 10 s.
	Wait time.Duration
	// OnRefused is called for every refusal, in the goroutine whose write was refused, and must
	// return quickly.
	OnRefused func(*RefusedError)
}

// Mark keeps high-water marks for any number of resources. A Mark is safe for concurrent use.
type Mark struct {
	storage   Storage
	mayWrite  func(driver.ShardID, string) bool
	wait      time.Duration
	onRefused func(*RefusedError)
	refused   atomic.Uint64

	mu    sync.Mutex
	gates map[string]*gate // the gates of resources with running or waiting effects
}

// gate contains the effects that are running, or waiting to run, on a resource.
type gate struct {
	running map[*effect]struct{}
	left    chan struct{} // closed when an effect ends
}

type effect struct {
	fence  driver.Fence
	cancel context.CancelCauseFunc // cancels the effect's context
	// superseded ends when a higher token starts to wait, or when the effect ends. Unlike the
	// effect's context, superseded does not end with the caller's context.
	superseded context.Context
	supersede  context.CancelFunc
	leave      func()
}

// ByName reports whether a resource belongs to a shard according to the resource's name. For
// example, "ledger" and "ledger/7" belong to shard "ledger".
func ByName(shard driver.ShardID, resource string) bool {
	rest, ok := strings.CutPrefix(resource, string(shard))
	return ok && (rest == "" || rest[0] == '/')
}

// NewMark returns a Mark that uses the Storage s. The caller still owns s.
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

// Admit raises the resource's mark to f if f's token is higher, and returns nil if the resulting
// mark is f. Otherwise, the error is a *RefusedError, or a *ForeignError if leases of f's shard may
// not write to the resource. The result may already be out of date when Admit returns. Unless the
// resource itself accepts only one writer, a newer holder may write between Admit and the caller's
// write. See Do.
//
// An error that matches neither driver.ErrLost nor driver.ErrInvalid comes from the Storage. After
// such an error, the caller must not write, but may call Admit again.
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

// Do admits f and then runs effect, in the caller's goroutine. While effect runs, the Mark may
// admit a higher token for the resource. The Mark then refuses f and all lower tokens, and the
// context of effect ends with a *RefusedError as its cause. The higher token's Do or Seal waits
// until effect has returned. Effects under one fence run concurrently.
//
// Both ctx and Options.Wait limit how long Do waits. If effects of lower tokens do not end within
// Options.Wait, the error matches ErrBusy. The context of effect is a child of ctx. Do returns
// effect's error unchanged.
func (m *Mark) Do(ctx context.Context, resource string, f driver.Fence, effect func(context.Context) error) error {
	ctx, leave, err := m.Enter(ctx, resource, f)
	if err != nil {
		return err
	}
	defer leave()
	return effect(ctx)
}

// Seal raises the resource's mark to f, and waits until no effect of a lower token runs in this
// process. A new leader calls Seal for every resource before it announces itself. The error is
// Admit's error, ErrBusy, or ctx's error if ctx ends during the wait. In the last two cases, the
// mark has been raised despite the error.
func (m *Mark) Seal(ctx context.Context, resource string, f driver.Fence) error {
	return m.Do(ctx, resource, f, func(context.Context) error { return nil })
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

// Enter begins an effect as Do does, but the effect need not be a single function. To end the
// effect, the caller calls leave once. If Enter returns an error, leave is nil.
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
	// Count the effect before it is admitted. If the effect were counted later, a higher token
	// could arrive between the admission and the count, find no effect, and proceed.
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
	defer func() { // runs even if the Storage or a function in Options ends this goroutine
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

// await cancels the effects of lower tokens, and returns when they have all ended.
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

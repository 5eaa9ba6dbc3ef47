package tenuretest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/internal/proof/intercept"
	"github.com/tenure-go/tenure/internal/virtual"
)

// backend is a member's connection to the store. Core gets the process's clocks from the backend.
type backend struct {
	core.Backend
	process *virtual.Process
}

var _ virtual.Host = (*backend)(nil)

// Process implements virtual.Host.
func (b *backend) Process() *virtual.Process { return b.process }

// A link connects a process to the store and to other services, and applies the process's faults.
type link struct {
	process *virtual.Process
	gone    chan struct{} // closed when the process crashes

	mu    sync.Mutex
	on    Faults
	moved chan struct{} // closed when a fault begins or ends
}

func newLink(p *virtual.Process) *link {
	return &link{process: p, gone: make(chan struct{}), moved: make(chan struct{})}
}

func (l *link) set(f Faults, on bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if f&Suspend != 0 {
		if on {
			l.process.Suspend()
		} else {
			l.process.Resume()
		}
	}
	if on {
		l.on |= f
	} else {
		l.on &^= f
	}
	close(l.moved)
	l.moved = make(chan struct{})
}

// crash makes the process appear to have ended, for the store and for other processes.
func (l *link) crash() { close(l.gone) }

func (l *link) crashed() bool {
	select {
	case <-l.gone:
		return true
	default:
		return false
	}
}

func (l *link) has(f Faults) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.on&f != 0
}

// await waits while one of the faults is on. The error is ctx's error or ErrCrashed.
func (l *link) await(ctx context.Context, while Faults) error {
	for {
		l.mu.Lock()
		on, moved := l.on&while != 0, l.moved
		l.mu.Unlock()
		if l.crashed() {
			return ErrCrashed
		}
		if !on {
			return nil
		}
		select {
		case <-moved:
		case <-l.gone:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// A message is a call to the store, or an effect of Do, that is in transit.
type message struct {
	m    *Member
	what string
	n    int // number of equal messages that the member has sent
}

func (m *Member) message(what ...any) *message {
	x := &message{m: m, what: fmt.Sprint(what...)}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sent[x.what]++
	x.n = m.sent[x.what]
	return x
}

func (x *message) travel(ctx context.Context) error {
	w := x.m.w
	// The delay has nanosecond resolution, so that two events rarely happen at the same time.
	most := int64(w.o.TTL / 250)
	t := time.NewTimer(time.Duration(most/10 + w.draw(most, x.m.node, x.what, x.n)))
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-x.m.link.gone:
		return ErrCrashed
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// pass waits while one of the faults is on. After the fault, the delayed messages continue at
// slightly different times.
func (x *message) pass(ctx context.Context, faults Faults) error {
	for x.m.link.has(faults) {
		if err := x.m.link.await(ctx, faults); err != nil {
			return err
		}
		if err := x.travel(ctx); err != nil {
			return err
		}
	}
	if x.m.link.crashed() {
		return ErrCrashed
	}
	return nil
}

// Each call from the member to the store passes through this function.
func (m *Member) around(ctx context.Context, c *intercept.Call, proceed func(context.Context) error) error {
	x := m.message(c.Op, " ", c.Shard, " ", c.Key)
	if err := x.travel(ctx); err != nil {
		return err
	}
	stopped := context.WithoutCancel(ctx) // a stopped process does not notice its deadlines
	if err := x.pass(stopped, Pause|Suspend); err != nil {
		return err
	}
	send := ctx
	if c.Op.Writes() {
		send = stopped // a request that was sent arrives even if no caller waits for it
	}
	if err := x.pass(ctx, Cut); err != nil {
		if c.Op.Writes() && m.w.draw(2, "late", m.node, x.what, x.n) == 0 {
			m.w.late.Go(func() { // the network delivers the request when the fault ends
				if x.pass(send, Cut) == nil {
					_ = proceed(send)
				}
			})
		}
		return err
	}
	err := proceed(send)
	if gone := x.travel(ctx); gone != nil {
		return unheard(gone)
	}
	if gone := x.pass(stopped, Pause|Suspend); gone != nil {
		return unheard(gone)
	}
	lossy := Cut
	if c.Op.Writes() {
		lossy |= LostReply
	}
	if !m.link.has(lossy) {
		return err
	}
	if gone := x.pass(ctx, lossy); gone != nil {
		return unheard(gone)
	}
	if c.Op.Writes() {
		return context.DeadlineExceeded
	}
	return err
}

// unheard returns the error of a call that the store may have executed. The error does not match
// ErrCrashed, which would mean that the store did nothing.
func unheard(gone error) error {
	if errors.Is(gone, ErrCrashed) {
		return errUnheard
	}
	return gone
}

var errUnheard = errors.New("tenuretest: the member has crashed, and does not hear the answer")

//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/tenure-go/tenure/core"
)

const (
	maxBatch   = 32                     // maximum number of decisions in one write
	retryPause = 100 * time.Millisecond // pause after a write with an unknown outcome
)

// An owner reads the last decision in the airport's log, and appends a decision for each later
// departure that is due.
func (m *member) work(ctx context.Context, l *core.Lease) (err error) {
	airport, token := l.Shard(), int64(l.Token())
	m.report(event{Is: isGranted, Airport: airport, Token: token})
	defer func() {
		e := event{Is: isEnded, Airport: airport, Token: token}
		if cause := context.Cause(ctx); cause != nil {
			e.Cause = cause.Error()
			e.Planned = l.Err() == nil && (errors.Is(cause, core.ErrWithdrawn) || errors.Is(cause, core.ErrHandOver) ||
				errors.Is(cause, core.ErrShutdown))
		} else if err != nil {
			e.Cause = err.Error()
		}
		m.report(e)
	}()

	departures := m.flights.from[airport]
	last, err := decisionAt(l, l.Head().Seq)
	resumed := false
	for err == nil {
		upto, raised := m.clear.now()
		ops, next := last.batch(departures, upto, token)
		if len(ops) == 0 {
			if !resumed {
				resumed = true
				m.report(event{Is: isResumed, Airport: airport, Token: token, Count: last.Count})
			}
			select {
			case <-ctx.Done():
				return nil
			case <-raised:
			}
			continue
		}
		_, err = l.Commit(l.Context(), ops...)
		if err == nil {
			last = next
			e := event{Is: isWrote, Airport: airport, Token: token, Count: last.Count}
			if !resumed {
				resumed, e.Is = true, isResumed
			}
			m.report(e)
		} else if l.Err() == nil {
			last, err = reread(ctx, l) // the log shows whether the write was applied
		}
		if ctx.Err() != nil {
			return nil
		}
	}
	if ctx.Err() != nil || l.Err() != nil {
		return nil // the lease has ended, and so has the work
	}
	return err
}

// The operations form one write with the decisions that are due after the receiver. The returned
// decision is the last of these.
func (last decision) batch(departures []departure, upto int, token int64) ([]core.Op, decision) {
	var ops []core.Op
	now := monotonic()
	for _, d := range departures[min(last.Count, len(departures)):] {
		if d.pos >= upto || len(ops) == maxBatch {
			break
		}
		last = last.next(d, token)
		last.At = now
		ops = append(ops, core.Append(last.encode()))
	}
	return ops, last
}

// reread reads the last decision in the airport's log, and retries until the lease ends.
func reread(ctx context.Context, l *core.Lease) (decision, error) {
	for {
		select {
		case <-ctx.Done():
			return decision{}, context.Cause(ctx)
		case <-time.After(retryPause):
		}
		page, err := l.ReadLog(l.Context(), 0, 0)
		if err == nil {
			return decisionAt(l, page.Head.Seq)
		} else if l.Err() != nil {
			return decision{}, err
		}
	}
}

// decisionAt reads one decision from the airport's log. Number 0 is the zero decision, which
// precedes the first decision.
func decisionAt(l *core.Lease, number core.Seq) (decision, error) {
	if number == 0 {
		return decision{}, nil
	}
	page, err := l.ReadLog(l.Context(), number-1, 1)
	if err != nil {
		return decision{}, err
	}
	if len(page.Entries) == 0 {
		return decision{}, fmt.Errorf("demo: the log of %s has no entry %d", l.Shard(), number)
	}
	return decodeDecision(page.Entries[0].Payload)
}

// A clearance is the number of departures in the file that may be decided. A clearance is safe for
// concurrent use.
type clearance struct {
	mu     sync.Mutex
	upto   int
	raised chan struct{}
}

func newClearance() *clearance { return &clearance{raised: make(chan struct{})} }

// The channel is closed when the number of departures that may be decided increases.
func (c *clearance) now() (int, <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.upto, c.raised
}

func (c *clearance) raise(upto int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if upto > c.upto {
		c.upto = upto
		close(c.raised)
		c.raised = make(chan struct{})
	}
}

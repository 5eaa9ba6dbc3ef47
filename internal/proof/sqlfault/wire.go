package sqlfault

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
)

// Calls counts transactions. A read of several rows outside a transaction counts as one
// transaction. Calls is safe for concurrent use.
type Calls struct{ Reads, Writes atomic.Int64 }

// Wire is a network between a backend and its store. The zero value has no fault. Only one fault is
// active at a time. A fault lasts until the test calls the returned function. A Wire is safe for
// concurrent use.
type Wire struct {
	mu    sync.Mutex
	fault fault
	held  []func() // held requests, in order
}

type fault int

const (
	none fault = iota
	requestsLost
	repliesLost
	holding
	severed
)

// Pass sends a request over the wire and waits for its reply. If the request may change the store,
// writes must be true.
func (w *Wire) Pass(ctx context.Context, writes bool, call func(context.Context) error) error {
	w.mu.Lock()
	fault := w.fault
	if (fault == holding || fault == repliesLost) && !writes {
		fault = none // a call of several steps must reach the decisive step
	}
	reply := make(chan error, 1)
	if fault == holding {
		late := context.WithoutCancel(ctx)
		w.held = append(w.held, func() { reply <- call(late) })
	}
	w.mu.Unlock()
	switch fault {
	case none:
		return call(ctx)
	case severed:
		return errors.New("the connection is cut")
	case repliesLost:
		_ = call(context.WithoutCancel(ctx)) // its reply is lost
	default: // requestsLost, holding: no answer
	}
	select {
	case err := <-reply:
		return err
	case <-ctx.Done():
		return fmt.Errorf("no reply: %w", ctx.Err())
	}
}

func (w *Wire) set(f fault) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fault = f
}

// holds returns the number of held requests.
func (w *Wire) holds() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.held)
}

func (w *Wire) begin(f fault) (end func()) {
	w.set(f)
	return func() { w.set(none) }
}

// DropRequests loses transactions before they begin, so their callers get no answer.
func (w *Wire) DropRequests() (end func()) { return w.begin(requestsLost) }

// DropReplies runs transactions, but loses the answers of transactions that write.
func (w *Wire) DropReplies() (end func()) { return w.begin(repliesLost) }

// Cut fails transactions before they begin.
func (w *Wire) Cut() (heal func()) { return w.begin(severed) }

// Hold holds back writing transactions until release runs them in order, including transactions
// that their callers have abandoned.
func (w *Wire) Hold() (release func()) {
	w.set(holding)
	return func() {
		w.mu.Lock()
		held := w.held
		w.fault, w.held = none, nil
		w.mu.Unlock()
		for _, deliver := range held {
			deliver()
		}
	}
}

package sqlfault

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// Wire is a network between a backend and its store. The zero value is a good one;
// safe for concurrent use. Each fault lasts until the function that it returned is
// called, and one is in force at a time.
type Wire struct {
	mu    sync.Mutex
	fault fault
	held  []func() // requests kept back, in order
}

type fault int

const (
	none fault = iota
	requestsLost
	repliesLost
	holding
	severed
)

// pass sends a request over the wire and waits for its reply. writes: it may change the store.
func (w *Wire) pass(ctx context.Context, writes bool, call func(context.Context) error) error {
	w.mu.Lock()
	fault := w.fault
	if (fault == holding || fault == repliesLost) && !writes {
		fault = none // so that a call of several steps gets to the one that matters
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
		_ = call(context.WithoutCancel(ctx)) // nobody hears it
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

// holds is how many requests are kept back.
func (w *Wire) holds() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.held)
}

func (w *Wire) begin(f fault) (end func()) {
	w.set(f)
	return func() { w.set(none) }
}

// DropRequests loses transactions before they begin; nothing is answered.
func (w *Wire) DropRequests() (end func()) { return w.begin(requestsLost) }

// DropReplies lets transactions run; of those that write nothing is answered.
func (w *Wire) DropReplies() (end func()) { return w.begin(repliesLost) }

// Cut fails transactions before they begin.
func (w *Wire) Cut() (heal func()) { return w.begin(severed) }

// Hold keeps transactions that write back until release runs them, in order, also those
// whose caller has given up since.
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

package sqlite

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// wire is a network between a backend and its store, as other stores have one.
// The zero value is a good one.
type wire struct {
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

// pass sends a request over the wire and waits for its reply.
func (w *wire) pass(ctx context.Context, call func(context.Context) error) error {
	w.mu.Lock()
	fault := w.fault
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
	}
	select {
	case err := <-reply:
		return err
	case <-ctx.Done():
		return fmt.Errorf("no reply: %w", ctx.Err())
	}
}

func (w *wire) set(f fault) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fault = f
}

func (w *wire) begin(f fault) (end func()) {
	w.set(f)
	return func() { w.set(none) }
}

func (w *wire) dropRequests() func() { return w.begin(requestsLost) }
func (w *wire) dropReplies() func()  { return w.begin(repliesLost) }
func (w *wire) cut() func()          { return w.begin(severed) }

func (w *wire) hold() func() {
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

package dialect

import (
	"sync"

	"github.com/tenure-go/tenure/backends/sql/internal/engine"
)

// Wake is a broadcast to waiting readers. The zero value is ready for use. A Wake is safe for
// concurrent use.
type Wake struct{ observers, tailers, watchers signal }

// C returns a channel that is closed by the next Broadcast to the given readers.
func (w *Wake) C(of engine.Readers) <-chan struct{} {
	switch of {
	case engine.Tailers:
		return w.tailers.c()
	case engine.Watchers:
		return w.watchers.c()
	default:
		return w.observers.c()
	}
}

// Broadcast wakes all waiting readers of the given kinds.
func (w *Wake) Broadcast(to engine.Readers) {
	if to&engine.Observers != 0 {
		w.observers.broadcast()
	}
	if to&engine.Tailers != 0 {
		w.tailers.broadcast()
	}
	if to&engine.Watchers != 0 {
		w.watchers.broadcast()
	}
}

type signal struct {
	mu sync.Mutex
	ch chan struct{}
}

func (s *signal) c() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ch == nil {
		s.ch = make(chan struct{})
	}
	return s.ch
}

func (s *signal) broadcast() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ch != nil {
		close(s.ch)
		s.ch = nil
	}
}

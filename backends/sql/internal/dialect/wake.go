package dialect

import (
	"sync"

	"github.com/tenure-go/tenure/backends/sql"
)

// Wake is a broadcast to readers who wait. The zero value is ready; safe for
// concurrent use.
type Wake struct{ observers, tailers, watchers signal }

// C returns a channel that the next Broadcast to readers of one kind closes.
func (w *Wake) C(of sql.Readers) <-chan struct{} {
	switch of {
	case sql.Tailers:
		return w.tailers.c()
	case sql.Watchers:
		return w.watchers.c()
	default:
		return w.observers.c()
	}
}

// Broadcast wakes all who wait, of the kinds given.
func (w *Wake) Broadcast(to sql.Readers) {
	if to&sql.Observers != 0 {
		w.observers.broadcast()
	}
	if to&sql.Tailers != 0 {
		w.tailers.broadcast()
	}
	if to&sql.Watchers != 0 {
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

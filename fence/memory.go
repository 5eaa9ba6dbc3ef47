package fence

import (
	"context"
	"sync"

	"github.com/tenure-go/tenure/core/driver"
)

var _ Storage = (*Memory)(nil)

// Memory keeps marks in memory, for tests, and for a resource whose data are as
// short-lived as the process. A restart forgets them. The zero value is ready.
// Safe for concurrent use.
type Memory struct {
	mu    sync.Mutex
	marks map[string]driver.Fence
}

// Raise implements Storage.
func (s *Memory) Raise(_ context.Context, resource string, f driver.Fence) (driver.Fence, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	current := s.marks[resource]
	if f.Token <= current.Token {
		return current, nil
	}
	if s.marks == nil {
		s.marks = make(map[string]driver.Fence)
	}
	s.marks[resource] = f
	return f, nil
}

// Load implements Storage.
func (s *Memory) Load(_ context.Context, resource string) (driver.Fence, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.marks[resource], nil
}

package fence

import (
	"context"
	"fmt"
	"sync"

	"github.com/tenure-go/tenure/core/driver"
)

var _ Storage = (*Memory)(nil)

// Memory keeps marks in memory, for tests and for resources that exist no longer than the process.
// A restart loses the marks. Memory keeps at most 100,000 marks. The zero value is ready to use.
// Memory is safe for concurrent use.
type Memory struct {
	mu    sync.Mutex
	marks map[string]driver.Fence
}

// maxMarks limits the marks of a Memory or a File, because callers may be able to choose their
// names.
const maxMarks = 100_000

// room returns an error if a further mark would exceed maxMarks.
func room(marks map[string]driver.Fence, resource string) error {
	if _, ok := marks[resource]; !ok && len(marks) >= maxMarks {
		return fmt.Errorf("tenure: there are %d marks already, which is the limit: have the server name the resources, and not its callers",
			len(marks))
	}
	return nil
}

// Raise implements Storage.
func (s *Memory) Raise(_ context.Context, resource string, f driver.Fence) (driver.Fence, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	current := s.marks[resource]
	if f.Token <= current.Token {
		return current, nil
	}
	if err := room(s.marks, resource); err != nil {
		return driver.Fence{}, err
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

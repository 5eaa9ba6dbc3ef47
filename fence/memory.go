package fence

import (
	"context"
	"fmt"
	"sync"

	"github.com/tenure-go/tenure/core/driver"
)

var _ Storage = (*Memory)(nil)

// Memory keeps marks in memory. Use Memory for tests and for resources that do not outlive the
// process. A restart loses the marks. Memory keeps at most 100,000 marks. The zero value is ready
// to use. Memory is safe for concurrent use.
type Memory struct {
	mu    sync.Mutex
	marks map[string]driver.Fence
}

// maxMarks is the maximum number of marks in a Memory or a File. Without this limit, callers that
// choose the resources' names could fill memory.
const maxMarks = 100_000

// room returns an error if a new mark would exceed maxMarks.
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

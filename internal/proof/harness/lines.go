package harness

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"sync"
)

// maxLine bounds one line, in bytes.
const maxLine = 1 << 20

// Writer writes values as lines of JSON, each by one write. Safe for concurrent use.
type Writer struct {
	mu sync.Mutex
	w  io.Writer
}

// NewWriter returns a Writer to w.
func NewWriter(w io.Writer) *Writer { return &Writer{w: w} }

// Write writes one value.
func (l *Writer) Write(v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	_, err = l.w.Write(append(b, '\n'))
	return err
}

// Reader reads the output of a Writer. Not safe for concurrent use.
type Reader struct{ s *bufio.Scanner }

// NewReader returns a Reader of r.
func NewReader(r io.Reader) *Reader {
	s := bufio.NewScanner(r)
	s.Buffer(nil, maxLine)
	return &Reader{s}
}

// Read fills v from the next line; io.EOF at the end.
func (l *Reader) Read(v any) error {
	if !l.s.Scan() {
		if err := l.s.Err(); err != nil {
			return fmt.Errorf("tenure: read a line: %w", err)
		}
		return io.EOF
	}
	if err := json.Unmarshal(l.s.Bytes(), v); err != nil {
		return fmt.Errorf("tenure: not a line of the protocol: %w", err)
	}
	return nil
}

// All returns the values of the lines that are left, without those that are no T. The
// goroutine behind it ends with the process at the latest: nothing can interrupt a
// read of standard input.
func All[T any](l *Reader) <-chan T {
	out := make(chan T)
	go func() {
		defer close(out)
		for l.s.Scan() {
			var v T
			if json.Unmarshal(l.s.Bytes(), &v) == nil {
				out <- v
			}
		}
	}()
	return out
}

package harness

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"sync"
)

// maxLine limits one line, in bytes.
const maxLine = 1 << 20

// Writer writes values as lines of JSON, with one write for each value. A Writer is safe for
// concurrent use.
type Writer struct {
	mu sync.Mutex
	w  io.Writer
}

// NewWriter returns a Writer that writes to w.
func NewWriter(w io.Writer) *Writer { return &Writer{w: w} }

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

// Reader reads the output of a Writer. A Reader is not safe for concurrent use.
type Reader struct{ s *bufio.Scanner }

// NewReader returns a Reader that reads from r.
func NewReader(r io.Reader) *Reader {
	s := bufio.NewScanner(r)
	s.Buffer(nil, maxLine)
	return &Reader{s}
}

// Read reads the next line into v. At the end of the input, Read returns io.EOF.
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

// All returns a channel with the values of the remaining lines, except those that do not decode
// into a T. Because a read from standard input cannot be interrupted, All's goroutine may run until
// the process ends.
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

package history

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/tenure-go/tenure/core/driver"
)

// maxLine limits one line of a file, in bytes.
const maxLine = 64 << 20

// header is the first line of a file.
type header struct {
	Process string `json:"process"`
	Clock   string `json:"clock"`
}

// Load reads and merges the files of several processes. Each file must come from a different
// process, and all files must come from one host since its last boot. Load ignores an incomplete
// last line, which a killed process may leave.
func Load(paths ...string) (*History, error) {
	var parts []*History
	seen := map[string]string{}
	clock := ""
	for _, path := range paths {
		head, h, err := load(path)
		if err != nil {
			return nil, fmt.Errorf("tenure: history: %s: %w", path, err)
		}
		if head.Process != "" {
			if other, dup := seen[head.Process]; dup {
				return nil, fmt.Errorf("tenure: history: %s and %s are both of process %q: name each incarnation "+
					"differently", other, path, head.Process)
			}
			seen[head.Process] = path
		}
		if clock != "" && head.Clock != clock {
			return nil, fmt.Errorf("tenure: history: %s was recorded on another host, or before it was started again: "+
				"its instants cannot be compared", path)
		}
		clock = head.Clock
		parts = append(parts, h)
	}
	return Merge(parts...), nil
}

func load(path string) (header, *History, error) {
	f, err := os.Open(path)
	if err != nil {
		return header{}, nil, err
	}
	head, h, err := decode(f)
	return head, h, errors.Join(err, f.Close())
}

// decode reads the lines of one file. If an operation has several lines, decode uses the last line.
func decode(r io.Reader) (head header, h *History, err error) {
	h = &History{}
	type name struct {
		process string
		id      int64
	}
	at := map[name]int{}
	b := bufio.NewReader(r)
	for n := 1; ; n++ {
		line, err := readLine(b)
		if errors.Is(err, io.EOF) {
			if n == 1 {
				return head, nil, errors.New("the file is empty, not even a header was written")
			}
			return head, h, nil
		}
		if err == nil && n == 1 {
			err = strict(line, &head)
			if err == nil && head.Clock == "" {
				err = errors.New("the header names no clock")
			}
			if err == nil {
				continue
			}
		}
		var op Operation
		if err == nil {
			err = strict(line, &op)
		}
		if err == nil {
			err = op.check(head)
		}
		if err != nil {
			return head, nil, fmt.Errorf("line %d: %w", n, err)
		}
		key := name{op.Process, op.ID}
		if i, again := at[key]; again {
			h.Operations[i] = op
			continue
		}
		at[key] = len(h.Operations)
		h.Operations = append(h.Operations, op)
	}
}

// readLine returns a line without its terminator. If the terminator is missing, readLine returns
// io.EOF.
func readLine(b *bufio.Reader) ([]byte, error) {
	var line []byte
	for {
		part, err := b.ReadSlice('\n')
		line = append(line, part...)
		if len(line) > maxLine {
			return nil, fmt.Errorf("longer than %d bytes", maxLine)
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return bytes.TrimSuffix(line, []byte("\n")), err
		}
	}
}

func strict(line []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(line))
	d.DisallowUnknownFields()
	return d.Decode(into)
}

// check returns an error if no Recorder could have written the operation.
func (o *Operation) check(head header) error {
	if head.Process != "" && o.Process != head.Process {
		return fmt.Errorf("operation %d is of process %q in the file of %q", o.ID, o.Process, head.Process)
	}
	if o.Process == "" || o.ID < 1 || o.Kind == "" || o.Call <= 0 || o.Return != 0 && o.Return < o.Call {
		return fmt.Errorf("operation %d of %q has no process, number or kind, or returned before it was called", o.ID,
			o.Process)
	}
	if o.Shard != "" {
		return driver.CheckShard(o.Shard)
	}
	return nil
}

// encode writes a history as one file, without a process name.
func (h *History) encode(w io.Writer) error {
	b := bufio.NewWriter(w)
	e := json.NewEncoder(b)
	if err := e.Encode(header{Clock: clockID()}); err != nil {
		return err
	}
	for i := range h.Operations {
		if err := e.Encode(&h.Operations[i]); err != nil {
			return err
		}
	}
	return b.Flush()
}

package trace

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// maxLine bounds one record, and with it the memory that a reader needs: a full view of
// 100,000 shards has some 20 MB.
const maxLine = 64 << 20

// Reader reads one file.
type Reader struct {
	Header Header
	lines  *bufio.Scanner
	n      int
}

// NewReader reads the header.
func NewReader(from io.Reader) (*Reader, error) {
	zip, err := gzip.NewReader(from)
	if err != nil {
		return nil, fmt.Errorf("this is no trace of Tenure: %w", err)
	}
	r := &Reader{lines: bufio.NewScanner(zip)}
	r.lines.Buffer(make([]byte, 64<<10), maxLine)
	r.lines.Split(wholeLines)
	if !r.lines.Scan() {
		return nil, fmt.Errorf("this is no trace of Tenure: %w", errors.Join(r.lines.Err(), io.ErrUnexpectedEOF))
	}
	r.n++
	if err := json.Unmarshal(r.lines.Bytes(), &r.Header); err != nil || r.Header.Format == 0 {
		return nil, errors.New("this is no trace of Tenure: its first line is no header")
	}
	if r.Header.Format != Format {
		return nil, fmt.Errorf("the trace has format %d, this version reads %d: check it with the version that wrote it",
			r.Header.Format, Format)
	}
	return r, nil
}

// wholeLines is bufio.ScanLines, but that the last line counts only if it has its end: a process
// that was killed may have written a part of it.
func wholeLines(data []byte, atEOF bool) (advance int, token []byte, err error) {
	if i := bytes.IndexByte(data, '\n'); i >= 0 {
		return i + 1, data[:i], nil
	}
	if atEOF && len(data) > 0 {
		return 0, nil, io.ErrUnexpectedEOF
	}
	return 0, nil, nil
}

// Next reads the next record. The error is io.EOF at the end, and io.ErrUnexpectedEOF where the
// process or the machine died before it had written the rest.
func (r *Reader) Next() (*Record, error) {
	if !r.lines.Scan() {
		err := r.lines.Err()
		switch {
		case err == nil:
			return nil, io.EOF
		case errors.Is(err, io.ErrUnexpectedEOF):
			return nil, io.ErrUnexpectedEOF
		}
		return nil, fmt.Errorf("line %d: %w", r.n+1, err)
	}
	r.n++
	rec := new(Record)
	if err := json.Unmarshal(r.lines.Bytes(), rec); err != nil {
		return nil, fmt.Errorf("line %d: %w", r.n, err)
	}
	return rec, nil
}

package trace

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/tenure-go/tenure/internal/boundjson"
)

// maxLine limits the size of a record, and thus a reader's memory. A full view of 100,000 shards
// takes about 20 MB.
const maxLine = 24 << 20

// Each shard in a view has 11 values.
const maxValues = 1_200_000

type Reader struct {
	Header Header
	lines  *bufio.Scanner
	n      int
	sum    uint32 // checksum of the lines so far
	good   int    // number of lines up to the last checksum
	most   int    // number of lines to read; 0 means all
}

// A checksum is a line with the CRC-32 of all preceding lines except checksums. The gzip checksum
// is not sufficient, because it is at the end of a file, which a killed process does not write.
type checksum struct {
	Sum uint32 `json:"sum"`
}

const sumStart = `{"sum":`

// NewReader reads the header and returns a Reader.
func NewReader(from io.Reader) (*Reader, error) {
	zip, err := gzip.NewReader(from)
	if err != nil {
		return nil, fmt.Errorf("this is no trace of Tenure: %w", err)
	}
	r := &Reader{lines: bufio.NewScanner(zip)}
	r.lines.Buffer(make([]byte, 64<<10), maxLine)
	r.lines.Split(wholeLines)
	if err := r.scan(); err != nil {
		return nil, fmt.Errorf("this is no trace of Tenure: %w", errors.Join(r.lines.Err(), io.ErrUnexpectedEOF))
	}
	if err := boundjson.Unmarshal(r.lines.Bytes(), maxLine, 256, &r.Header); err != nil || r.Header.Format == 0 {
		return nil, errors.New("this is no trace of Tenure: its first line is no header")
	}
	if r.Header.Format != Format {
		return nil, fmt.Errorf("the trace has format %d, this version reads %d: check it with the version that wrote it",
			r.Header.Format, Format)
	}
	return r, nil
}

// wholeLines is like bufio.ScanLines, but also requires a line end after the last line, because a
// killed process may have written only part of it.
func wholeLines(data []byte, atEOF bool) (advance int, token []byte, err error) {
	if i := bytes.IndexByte(data, '\n'); i >= 0 {
		return i + 1, data[:i], nil
	}
	if atEOF && len(data) > 0 {
		return 0, nil, io.ErrUnexpectedEOF
	}
	return 0, nil, nil
}

func (r *Reader) scan() error {
	for r.most == 0 || r.n < r.most {
		if !r.lines.Scan() {
			err := r.lines.Err()
			switch {
			case err == nil:
				return io.EOF
			case errors.Is(err, io.ErrUnexpectedEOF):
				return io.ErrUnexpectedEOF
			}
			return fmt.Errorf("line %d: %w", r.n+1, err)
		}
		line := r.lines.Bytes()
		if !bytes.HasPrefix(line, []byte(sumStart)) {
			r.n++
			r.sum = crc32.Update(r.sum, crc32.IEEETable, line)
			return nil
		}
		var c checksum
		if err := boundjson.Unmarshal(line, maxLine, 8, &c); err != nil || c.Sum != r.sum {
			return fmt.Errorf("the lines to line %d do not fit their checksum", r.n)
		}
		r.good = r.n
	}
	return io.ErrUnexpectedEOF
}

// Next reads the next record. At the end of the trace, the error is io.EOF. If the process or
// machine died before it wrote the rest, the error is io.ErrUnexpectedEOF.
func (r *Reader) Next() (*Record, error) {
	if err := r.scan(); err != nil {
		return nil, err
	}
	rec := new(Record)
	if err := boundjson.Unmarshal(r.lines.Bytes(), maxLine, maxValues, rec); err != nil {
		return nil, fmt.Errorf("line %d: %w", r.n, err)
	}
	return rec, nil
}

package fence

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/boundjson"
)

var _ Storage = (*File)(nil)

// File keeps marks in a file, for one process on one machine. File.Raise appends a line and syncs
// it to disk (fsync) before it returns. A File keeps at most 100,000 marks. A File is safe for
// concurrent use within that process. OpenFile refuses a second process, except on Windows, which
// lacks flock.
type File struct {
	path string

	mu     sync.Mutex
	file   *os.File
	lock   io.Closer
	marks  map[string]driver.Fence
	lines  int   // number of lines in the file
	broken error // the error of a failed write, after which the content on disk is unknown
}

// maxLine is the maximum length of a line that OpenFile reads. Raise writes much shorter lines.
const maxLine = 4096

// In each line of the file, a checksum and a space precede this JSON.
type fileMark struct {
	Resource string       `json:"resource"`
	Fence    driver.Fence `json:"fence"`
}

// OpenFile opens the marks in the file at path. OpenFile creates the file if necessary, but the
// folder must exist. If a crash left the last line incomplete, OpenFile removes that line, because
// the Raise call that wrote it did not return. Any other damage is an error. The caller closes the
// File.
func OpenFile(path string) (*File, error) {
	lock, err := lockFile(path + ".lock")
	if err != nil {
		return nil, fmt.Errorf("tenure: marks in %s: %w", path, err)
	}
	s := &File{path: path, lock: lock}
	if err := s.open(); err != nil {
		return nil, errors.Join(fmt.Errorf("tenure: marks in %s: %w", path, err), s.Close())
	}
	return s, nil
}

func (s *File) open() error {
	f, err := os.OpenFile(s.path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	s.file = f
	marks, lines, good, err := readMarks(f)
	if err != nil {
		return err
	}
	s.marks, s.lines = marks, lines
	if s.tooLong() {
		return s.rewrite()
	}
	if err := f.Truncate(good); err != nil {
		return err
	}
	if _, err := f.Seek(good, io.SeekStart); err != nil {
		return err
	}
	return errors.Join(f.Sync(), syncFolder(s.path))
}

// readMarks reads all complete lines, and returns the offset after the last complete line.
func readMarks(r io.Reader) (marks map[string]driver.Fence, lines int, good int64, err error) {
	marks = make(map[string]driver.Fence)
	in := bufio.NewReaderSize(r, maxLine)
	for {
		line, err := in.ReadSlice('\n')
		switch {
		case errors.Is(err, io.EOF):
			return marks, lines, good, nil
		case err != nil:
			return nil, 0, 0, fmt.Errorf("line %d: %w", lines+1, err)
		}
		lines++
		m, err := decodeMark(line)
		if err != nil {
			return nil, 0, 0, fmt.Errorf("line %d: %w: restore the file, or remove it and seal every resource anew",
				lines, err)
		}
		if m.Fence.Token > marks[m.Resource].Token {
			marks[m.Resource] = m.Fence
		}
		good += int64(len(line))
	}
}

func encodeMark(resource string, f driver.Fence) ([]byte, error) {
	text, err := json.Marshal(fileMark{Resource: resource, Fence: f})
	if err != nil {
		return nil, err
	}
	return fmt.Appendf(nil, "%08x %s\n", crc32.ChecksumIEEE(text), text), nil
}

func decodeMark(line []byte) (fileMark, error) {
	var m fileMark
	sum, text, ok := bytes.Cut(bytes.TrimSuffix(line, []byte("\n")), []byte(" "))
	if !ok || string(sum) != fmt.Sprintf("%08x", crc32.ChecksumIEEE(text)) {
		return m, errors.New("the checksum is wrong")
	}
	if err := boundjson.Unmarshal(text, len(text), 16, &m); err != nil {
		return m, err
	}
	return m, check(m.Resource, m.Fence)
}

func (s *File) tooLong() bool { return s.lines > 2*len(s.marks)+100 }

// rewrite replaces the file with a new file that contains one line for each mark.
func (s *File) rewrite() (err error) {
	next, err := os.CreateTemp(filepath.Dir(s.path), filepath.Base(s.path)+".new-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, next.Close(), os.Remove(next.Name()))
		}
	}()
	resources := make([]string, 0, len(s.marks))
	for r := range s.marks {
		resources = append(resources, r)
	}
	slices.Sort(resources)
	out := bufio.NewWriter(next)
	for _, r := range resources {
		line, err := encodeMark(r, s.marks[r])
		if err != nil {
			return err
		}
		if _, err := out.Write(line); err != nil {
			return err
		}
	}
	if err := errors.Join(out.Flush(), next.Sync()); err != nil {
		return err
	}
	if err := os.Rename(next.Name(), s.path); err != nil {
		return err
	}
	former := s.file
	s.file, s.lines = next, len(s.marks)
	return errors.Join(former.Close(), syncFolder(s.path))
}

// Raise implements Storage. After a failed write, every later call to Raise fails until OpenFile
// reads the file again.
func (s *File) Raise(ctx context.Context, resource string, f driver.Fence) (driver.Fence, error) {
	if err := check(resource, f); err != nil {
		return driver.Fence{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.ready(ctx); err != nil {
		return driver.Fence{}, err
	}
	if current := s.marks[resource]; f.Token <= current.Token {
		return current, nil
	}
	line, err := encodeMark(resource, f)
	if err == nil {
		err = room(s.marks, resource)
	}
	if err != nil {
		return driver.Fence{}, err
	}
	if _, err = s.file.Write(line); err == nil {
		err = s.file.Sync()
	}
	if err == nil {
		s.marks[resource] = f
		if s.lines++; s.tooLong() {
			err = s.rewrite()
		}
	}
	if err != nil {
		s.broken = fmt.Errorf("tenure: marks in %s: a write failed, open them anew: %w", s.path, err)
		return driver.Fence{}, s.broken
	}
	return f, nil
}

func (s *File) ready(ctx context.Context) error {
	switch {
	case s.broken != nil:
		return s.broken
	case s.lock == nil:
		return fmt.Errorf("tenure: marks in %s: %w", s.path, driver.ErrClosed)
	}
	return ctx.Err()
}

// Close closes the file. A second call to Close does nothing.
func (s *File) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lock == nil {
		return nil
	}
	var err error
	if s.file != nil {
		err = s.file.Close()
	}
	err = errors.Join(err, s.lock.Close())
	s.lock = nil
	return err
}

// Syncing the folder makes a new name in it durable.
func syncFolder(path string) error {
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(ignoreUnsupported(dir.Sync()), dir.Close())
}

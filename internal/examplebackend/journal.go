package examplebackend

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/tenure-go/tenure/core/driver"
)

const (
	// defaultCompactAt is how long a journal may be before it is rewritten, in
	// bytes.
	defaultCompactAt = 8 << 20
	// compactRatio is how much longer than its records it must be as well.
	compactRatio = 4
	// sumLen is the length of a line's checksum and the space after it.
	sumLen = 9
	// baseRecords is how many records a line of a rewritten journal has at most.
	baseRecords = 256
)

// journal is this process's reading of the file. Nothing in it waits: the caller
// holds the lock file, and a mutex.
type journal struct {
	dir       string
	compactAt int64
	file      *os.File // nil while it does not exist
	info      os.FileInfo
	end       int64 // of the last valid line
	table     table
	loads     int // how often the file was read from its beginning
}

func (j *journal) path() string { return filepath.Join(j.dir, "journal") }

// current reports whether every acknowledged write is in the table. It needs no
// lock: a write is in the file before its acknowledgement.
func (j *journal) current() (bool, error) {
	info, err := os.Stat(j.path())
	if errors.Is(err, fs.ErrNotExist) {
		return j.file == nil && j.loads > 0, nil
	}
	if err != nil {
		return false, err
	}
	return j.file != nil && os.SameFile(info, j.info) && info.Size() == j.end, nil
}

// refresh reads lines that others appended. Under the lock file, shared or exclusive.
func (j *journal) refresh() error {
	info, err := os.Stat(j.path())
	if errors.Is(err, fs.ErrNotExist) {
		// Wiped: package kv finds that out by the identity record (rule I1).
		if j.file != nil || j.loads == 0 {
			return j.load(nil, nil)
		}
		return nil
	}
	if err != nil {
		return err
	}
	if j.file == nil || !os.SameFile(info, j.info) || info.Size() < j.end {
		f, err := os.OpenFile(j.path(), os.O_RDWR, 0)
		if err != nil {
			return err
		}
		if err := j.load(f, info); err != nil {
			return err
		}
	}
	text := make([]byte, info.Size()-j.end)
	if _, err := io.ReadFull(io.NewSectionReader(j.file, j.end, int64(len(text))), text); err != nil {
		return err
	}
	for len(text) > 0 {
		n := bytes.IndexByte(text, '\n') + 1
		l, err := decodeLine(text[:max(0, n-1)])
		if err != nil {
			if n == 0 || n == len(text) {
				return nil // torn, and never acknowledged
			}
			return fmt.Errorf("tenure: %s is damaged at byte %d: restore it from a backup: %w", j.path(), j.end, err)
		}
		j.table.apply(l)
		j.end += int64(n)
		text = text[n:]
	}
	return nil
}

// load begins anew with another file.
func (j *journal) load(f *os.File, info os.FileInfo) error {
	var err error
	if j.file != nil {
		err = j.file.Close()
	}
	j.file, j.info, j.end, j.table = f, info, 0, table{}
	j.loads++
	return err
}

// append makes a line durable, under the exclusive lock and after a refresh. The
// table is the caller's to change afterwards. An error that matches
// driver.ErrRetry says that the line never counts; any other leaves that open.
func (j *journal) append(text []byte) error {
	if j.file == nil {
		return fmt.Errorf("tenure: %w: %s was removed: nothing to append to", driver.ErrRetry, j.path())
	}
	if err := j.file.Truncate(j.end); err != nil {
		return fmt.Errorf("tenure: %w: cutting off a torn line: %w", driver.ErrRetry, err)
	}
	n, err := j.file.WriteAt(text, j.end)
	if err != nil && n < len(text) {
		return fmt.Errorf("tenure: %w: %w", driver.ErrRetry, errors.Join(err, j.file.Truncate(j.end)))
	}
	if err == nil {
		err = j.file.Sync()
	}
	if err != nil {
		// Nobody has read it, but it may be on the disk.
		return fmt.Errorf("tenure: writing the journal: %w", errors.Join(err, j.file.Truncate(j.end)))
	}
	return nil
}

// compact rewrites a journal that is long beside its records, or is not there.
// Under the exclusive lock and after a refresh.
func (j *journal) compact(force bool) error {
	small := j.end < j.compactAt || j.end < compactRatio*int64(j.table.bytes)
	if j.file != nil && small && !force {
		return nil
	}
	var text []byte
	for at := 0; at < len(j.table.keys) || at == 0 && j.table.rev > 0; at += baseRecords {
		l := line{Rev: j.table.rev, Base: true}
		for _, key := range j.table.keys[at:min(at+baseRecords, len(j.table.keys))] {
			p := j.table.records[key]
			l.Set = append(l.Set, record{Key: p.Key, Value: p.Value, Rev: p.Rev})
		}
		encoded, err := encodeLine(l)
		if err != nil {
			return err
		}
		text = append(text, encoded...)
	}
	if err := replace(j.path(), text); err != nil {
		return fmt.Errorf("tenure: %w: rewriting the journal: %w", driver.ErrRetry, err)
	}
	return j.refresh()
}

// replace replaces a file by one with this text, durably.
func replace(path string, text []byte) error {
	f, err := os.OpenFile(path+".new", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err == nil {
		err = f.Sync()
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := os.Rename(path+".new", path); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

func encodeLine(l line) ([]byte, error) {
	text, err := json.Marshal(l)
	if err != nil {
		return nil, err
	}
	return fmt.Appendf(nil, "%08x %s\n", crc32.ChecksumIEEE(text), text), nil
}

func decodeLine(text []byte) (line, error) {
	var l line
	if len(text) < sumLen || string(text[:sumLen]) != fmt.Sprintf("%08x ", crc32.ChecksumIEEE(text[sumLen:])) {
		return l, errors.New("the checksum is wrong")
	}
	if err := json.Unmarshal(text[sumLen:], &l); err != nil {
		return l, err
	}
	if l.Rev <= 0 {
		return l, fmt.Errorf("revision %d is not positive", l.Rev)
	}
	return l, nil
}

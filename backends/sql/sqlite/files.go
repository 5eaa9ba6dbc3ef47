package sqlite

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/tenure-go/tenure/core/driver"
)

// membersSuffix makes the name of the members' file from that of the data file.
const membersSuffix = "-members"

// SQLite keeps the write-ahead log and its index beside a database file.
const (
	logSuffix   = "-wal"
	indexSuffix = "-shm"
)

// file is a file of SQLite's, and which file it was when it was opened. The file is
// only ever looked at by name: opening and closing it beside SQLite would drop
// the process's POSIX locks on it.
type file struct {
	path string
	was  fs.FileInfo
}

func newFile(path string) (file, error) {
	was, err := os.Stat(path)
	if err != nil {
		return file{}, fmt.Errorf("tenure: looking at the database's files: %w", err)
	}
	return file{path, was}, nil
}

// check notices that the file was removed or replaced.
func (f *file) check() error {
	now, err := os.Stat(f.path)
	how := ""
	switch {
	case errors.Is(err, fs.ErrNotExist):
		how = "was removed"
	case err != nil:
		return fmt.Errorf("tenure: %w: looking at the database's files: %w", driver.ErrRetry, err)
	case !os.SameFile(f.was, now):
		how = "was replaced by another file"
	default:
		return nil
	}
	return fmt.Errorf("tenure: %w: %s %s while the database was open: %s", driver.ErrStoreChanged, f.path, how, restoreAdvice)
}

// restoreAdvice is what to do about a database that lost something.
const restoreAdvice = "end every process that uses it, restore the data file and the members' file from a backup, and raise the floor"

// checkLog refuses an index without the log that it is of: SQLite creates the log
// before and removes it after, so somebody else removed it, and what was committed
// since the last checkpoint is in no file that can be found. SQLite would begin an
// empty log, and then fail for want of what the index promises.
func checkLog(ctx context.Context, path string) error {
	for range 3 { // an index that comes and goes meanwhile may have the same number
		before, err := os.Stat(path + indexSuffix)
		if err != nil {
			return nil
		}
		if _, err := os.Stat(path + logSuffix); !errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		again, err := os.Stat(path + indexSuffix)
		if err != nil || !os.SameFile(before, again) {
			return nil
		}
		pause := time.NewTimer(10 * time.Millisecond)
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return fmt.Errorf("tenure: opening %s: %w", path, driver.Ended(ctx))
		}
	}
	return fmt.Errorf("tenure: %w: %s%s was removed while the database was in use: %s; without a backup, remove %s%s too, to go on with what is left",
		driver.ErrStoreChanged, path, logSuffix, restoreAdvice, path, indexSuffix)
}

// checkPath looks at the name before anything is opened, and reports whether the
// file exists.
func checkPath(path string) (bool, error) {
	info, err := os.Stat(path)
	switch {
	case err == nil && info.IsDir():
		return false, fmt.Errorf("tenure: %w: %s is a directory: name a file in it", driver.ErrInvalid, path)
	case err == nil && !info.Mode().IsRegular():
		return false, fmt.Errorf("tenure: %w: %s is not a regular file", driver.ErrInvalid, path)
	case err == nil:
		return true, nil
	case !errors.Is(err, fs.ErrNotExist):
		return false, fmt.Errorf("tenure: looking at the database file: %w", err)
	}
	dir := filepath.Dir(path)
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return false, fmt.Errorf("tenure: %w: there is no directory %s: create it", driver.ErrInvalid, dir)
	}
	return false, nil
}

// createFile creates an empty database that only this user can read; SQLite gives its
// -wal and -shm files the same mode. The file gets its name when it is closed, since
// another goroutine may have it open in SQLite from then on: see file.
func createFile(path string) (err error) {
	temp, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".new-*")
	if err != nil {
		return fmt.Errorf("tenure: creating the database file: its directory cannot be written: check its rights: %w", err)
	}
	defer func() { err = errors.Join(err, os.Remove(temp.Name())) }()
	if err := temp.Close(); err != nil {
		return fmt.Errorf("tenure: creating the database file: %w", err)
	}
	if err := os.Link(temp.Name(), path); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("tenure: creating the database file: %w: create it yourself, empty and with mode 0600", err)
	}
	return nil
}

// dsn makes the driver's name for a file. busy is SQLite's own wait for locks in
// milliseconds, which the driver also ends with the call's context.
func dsn(path string, busy int) string {
	path = filepath.ToSlash(path)
	if runtime.GOOS == "windows" && !strings.HasPrefix(path, "/") {
		path = "/" + path
	}
	q := url.Values{"mode": {"rw"}, "_txlock": {"immediate"}, "_error_rc": {"1"}}
	q["_pragma"] = []string{"busy_timeout(" + strconv.Itoa(busy) + ")", "synchronous(full)"}
	return (&url.URL{Scheme: "file", Path: path, RawQuery: q.Encode()}).String()
}

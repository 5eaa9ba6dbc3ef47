package sqlite

import (
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"github.com/tenure-go/tenure/core/driver"
)

// membersSuffix makes the name of the members' file from that of the data file.
const membersSuffix = "-members"

// file is a database file, and which file it was when it was opened. The file is
// only ever looked at by name: opening and closing it beside SQLite would drop
// the process's POSIX locks on it.
type file struct {
	path string
	was  fs.FileInfo
}

// check notices that the file was removed or replaced under the open handles,
// which would go on as if nothing had happened (I1).
func (f *file) check() error {
	now, err := os.Stat(f.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("tenure: %w: %s was removed", driver.ErrStoreChanged, f.path)
	case err != nil:
		return fmt.Errorf("tenure: %w: looking at the database file: %w", driver.ErrRetry, err)
	case !os.SameFile(f.was, now):
		return fmt.Errorf("tenure: %w: %s was replaced by another file", driver.ErrStoreChanged, f.path)
	}
	return nil
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

// dsn makes the driver's name for a file. busy is SQLite's own wait for locks in
// milliseconds, which the driver also ends with the call's context.
func dsn(path string, create bool, busy int) string {
	path = filepath.ToSlash(path)
	if runtime.GOOS == "windows" && !strings.HasPrefix(path, "/") {
		path = "/" + path
	}
	q := url.Values{"mode": {"rw"}, "_txlock": {"immediate"}, "_error_rc": {"1"}}
	if create {
		q.Set("mode", "rwc")
	}
	q["_pragma"] = []string{"busy_timeout(" + strconv.Itoa(busy) + ")", "synchronous(full)"}
	return (&url.URL{Scheme: "file", Path: path, RawQuery: q.Encode()}).String()
}

package sqlite

import (
	"context"
	stdsql "database/sql"
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

// membersSuffix is appended to the data file's name to form the name of the members' file.
const membersSuffix = "-members"

// SQLite keeps the write-ahead log and its index next to a database file.
const (
	logSuffix   = "-wal"
	indexSuffix = "-shm"
)

// file is an SQLite file, with its identity when it was opened. Tenure inspects it only by name. If
// Tenure opened and closed it outside SQLite, the process would lose its POSIX locks on it.
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

// check returns an error if the file was removed or replaced.
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

const restoreAdvice = "end every process that uses it, restore the data file and the members' file from a backup, " +
	"remove the files with transactions at their end, and raise the floor"

// checkLog refuses a database whose log or index was removed while a process still has the removed
// file open. That process writes to a file that no other process reads. After all such processes
// have ended, the number of transactions shows whether any transactions are lost. If that number is
// unknown, checkLog refuses an index without a log, because such an index is the only trace that
// SQLite leaves. checkLog waits while other processes open or close the database.
func checkLog(ctx context.Context, path, prefix string) error {
	count, err := findTransactions(path, prefix, os.O_RDONLY)
	if err != nil {
		return err
	}
	var last int64
	var mark byte
	if count != nil {
		defer count.close() //nolint:errcheck // it was only read
	}
	for deadline := time.Now().Add(writeBackTime); ; {
		if count != nil {
			if last, mark, err = count.read(); err != nil {
				return err
			}
		}
		lost := path + logSuffix
		if mark != 0 && mark != logFile {
			lost = path + indexSuffix
		}
		if mark == 0 && !lacksLog(path) {
			return nil
		}
		if last == 0 {
			return fmt.Errorf("tenure: %w: %s was removed while the database was in use: %s; without a backup, remove %s%s and %s, to go on with what is left",
				driver.ErrStoreChanged, lost, restoreAdvice, path, indexSuffix, transactionsFile(path, prefix))
		}
		free, err := alone(ctx, path, func() error {
			if err := os.Remove(path + indexSuffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("tenure: removing an index without its log: check the rights of the directory: %w", err)
			}
			return unmark(path, prefix)
		})
		if free || err != nil {
			return err
		}
		if ctx.Err() != nil || time.Now().After(deadline) {
			return fmt.Errorf("tenure: %w: %s was removed while the database was in use, and a process still has it open: "+
				"end every process that uses it, by SIGTERM, so that nothing is lost, and open again", driver.ErrStoreChanged, lost)
		}
		time.Sleep(lastWait)
	}
}

// lacksLog reports whether the index exists without its log. SQLite creates the log before the
// index and removes the log after the index. lacksLog looks several times, because a recreated
// index may have the same inode number.
func lacksLog(path string) bool {
	for range 3 {
		before, err := os.Stat(path + indexSuffix)
		if err != nil {
			return false
		}
		if _, err := os.Stat(path + logSuffix); !errors.Is(err, fs.ErrNotExist) {
			return false
		}
		again, err := os.Stat(path + indexSuffix)
		if err != nil || !os.SameFile(before, again) {
			return false
		}
		time.Sleep(10 * time.Millisecond)
	}
	return true
}

// While fn runs, no other process has the database open or can open it. The result reports whether
// fn ran.
func alone(ctx context.Context, path string, fn func() error) (bool, error) {
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return true, fn()
	}
	// In this mode, SQLite takes the file's exclusive lock before it looks for a log, and uses no
	// index. With other settings, SQLite would read the file first.
	c, err := connector(uri(path, "busy_timeout(0)", "locking_mode(exclusive)"))
	if err != nil {
		return false, err
	}
	db := stdsql.OpenDB(c)
	defer db.Close()
	db.SetMaxOpenConns(1)
	conn, err := db.Conn(ctx)
	if err == nil {
		defer conn.Close()
		err = conn.QueryRowContext(ctx, "SELECT count(*) FROM sqlite_master").Scan(new(int))
	}
	switch {
	case busy(err) || ctx.Err() != nil:
		return false, nil
	case err != nil:
		return false, explain(path, err)
	}
	return true, fn()
}

// checkPath checks the name before anything is opened, and reports whether the file exists.
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

// createFile creates an empty database that only this user can read. SQLite gives its -wal and -shm
// files the same mode. The file gets its final name only after it is closed, because another
// goroutine may then open it in SQLite (see file).
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

// durability is a value of SQLite's synchronous setting, which determines what a commit flushes.
type durability int

const (
	// unflushed is used for heartbeats. Each commit survives the end of any process. A machine
	// crash may undo a commit, but also ends all members. A later flushed commit also flushes the
	// earlier ones.
	unflushed durability = 1 // normal
	flushed   durability = 2 // full
)

// dsn returns the data source name of a file. SQLite waits for a lock until the busy timeout, in
// milliseconds, expires or the call's context ends.
func dsn(path string, busy int, d durability) string {
	return uri(path, "busy_timeout("+strconv.Itoa(busy)+")", fmt.Sprintf("synchronous(%d)", d))
}

func uri(path string, pragmas ...string) string {
	path = filepath.ToSlash(path)
	if runtime.GOOS == "windows" && !strings.HasPrefix(path, "/") {
		path = "/" + path
	}
	q := url.Values{"mode": {"rw"}, "_txlock": {"immediate"}, "_error_rc": {"1"}, "_pragma": pragmas}
	return (&url.URL{Scheme: "file", Path: path, RawQuery: q.Encode()}).String()
}

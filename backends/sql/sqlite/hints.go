package sqlite

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"sync"

	"github.com/fsnotify/fsnotify"

	"github.com/tenure-go/tenure/backends/sql"
	"github.com/tenure-go/tenure/backends/sql/internal/dialect"
)

// hintsSuffix makes the name of the file by which processes tell each other that they
// have committed. SQLite writes its log before a commit can be seen, so that a reader that
// wakes when the log changes looks too early.
const hintsSuffix = "-hints"

// slots of the hints' file. A process that commits something for a kind of readers writes
// a random number there.
const (
	proofSlot = iota
	observersSlot
	tailersSlot
	watchersSlot
	slots
)

const slotBytes = 8

var errReplaced = errors.New("the file of hints was replaced")

// link carries hints by writes to a small file, of which the file system notifies.
type link struct {
	path string // of the data file

	mu   sync.Mutex
	file *os.File
	own  uint64 // last written to watchersSlot
}

var _ dialect.Link = (*link)(nil)

// Send writes to the slots of the readers given.
func (l *link) Send(_ context.Context, to sql.Readers) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file == nil {
		if err := l.open(); err != nil {
			return err
		}
	}
	var errs []error
	write := func(slot int64) uint64 {
		value := rand.Uint64()
		_, err := l.file.WriteAt(binary.LittleEndian.AppendUint64(nil, value), slot*slotBytes)
		errs = append(errs, err)
		return value
	}
	if to&sql.Observers != 0 {
		write(observersSlot)
	}
	if to&sql.Tailers != 0 {
		write(tailersSlot)
	}
	if to&sql.Watchers != 0 {
		l.own = write(watchersSlot)
	}
	if to == 0 {
		write(proofSlot)
	}
	return errors.Join(errs...)
}

// open opens the file, which gets the data file's mode if it is new.
func (l *link) open() (err error) {
	data, err := os.Stat(l.path)
	if err != nil {
		return err
	}
	name := l.path + hintsSuffix
	file, err := os.OpenFile(name, os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		if file, err = os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600); err == nil {
			err = file.Chmod(data.Mode().Perm())
		}
	}
	if err != nil {
		if file != nil {
			err = errors.Join(err, file.Close())
		}
		return err
	}
	l.file = file
	return nil
}

// reopen opens the file anew where another has its name.
func (l *link) reopen() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file != nil && !l.replaced() {
		return nil
	}
	if l.file != nil {
		_ = l.file.Close() // another has its name, so nobody reads it
		l.file = nil
	}
	return l.open()
}

// replaced reports whether another file, or none, has the name.
func (l *link) replaced() bool {
	is, err := l.file.Stat()
	if err != nil {
		return true
	}
	named, err := os.Stat(l.path + hintsSuffix)
	return err != nil || !os.SameFile(is, named)
}

// Listen hears until the context ends, or the file is removed or replaced.
func (l *link) Listen(ctx context.Context, ready func(), heard func(sql.Readers)) (err error) {
	if err := l.reopen(); err != nil {
		return err
	}
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, watcher.Close()) }()
	if err := watcher.Add(l.path + hintsSuffix); err != nil {
		return err
	}
	var last [slots]uint64
	if _, err := l.read(&last); err != nil {
		return err
	}
	ready()
	for {
		select {
		case event := <-watcher.Events:
			to, err := l.read(&last)
			if err != nil {
				return err
			}
			heard(to)
			if !event.Has(fsnotify.Write) && l.replaced() {
				return errReplaced
			}
		case err := <-watcher.Errors:
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// read returns who is to look for what has changed in the file, and remembers it. This
// process's own heartbeat is news to nobody here.
func (l *link) read(last *[slots]uint64) (to sql.Readers, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var now [slots * slotBytes]byte
	if _, err := l.file.ReadAt(now[:], 0); err != nil && !errors.Is(err, io.EOF) { // it may be new
		return 0, err
	}
	for slot, readers := range [slots]sql.Readers{
		observersSlot: sql.Observers, tailersSlot: sql.Tailers, watchersSlot: sql.Watchers,
	} {
		value := binary.LittleEndian.Uint64(now[slot*slotBytes:])
		if value != last[slot] && (slot != watchersSlot || value != l.own) {
			to |= readers
		}
		last[slot] = value
	}
	return to, nil
}

func (l *link) close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file == nil {
		return nil
	}
	return l.file.Close()
}

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

	"github.com/tenure-go/tenure/backends/sql/internal/dialect"
	"github.com/tenure-go/tenure/backends/sql/internal/engine"
)

// hintsSuffix is the suffix of the file through which processes notify each other of commits.
// SQLite writes its log before a commit becomes visible, so a reader woken by a change to the log
// would look too early.
const hintsSuffix = "-hints"

// These constants are the slots of the hints file. After a commit, a process writes a random number
// to the slot of each kind of reader that must look for the change.
const (
	proofSlot = iota
	observersSlot
	tailersSlot
	watchersSlot
	slots
)

const slotBytes = 8

var errReplaced = errors.New("the file of hints was replaced")

// link sends hints by writing to a small file. The file system notifies processes of these writes.
type link struct {
	path string // of the data file

	mu   sync.Mutex
	file *os.File
	own  uint64 // last written to watchersSlot
}

var _ dialect.Link = (*link)(nil)

// Send writes to the slots of the given readers.
func (l *link) Send(_ context.Context, to engine.Readers) error {
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
	if to&engine.Observers != 0 {
		write(observersSlot)
	}
	if to&engine.Tailers != 0 {
		write(tailersSlot)
	}
	if to&engine.Watchers != 0 {
		l.own = write(watchersSlot)
	}
	if to == 0 {
		write(proofSlot)
	}
	return errors.Join(errs...)
}

// A new hints file gets the data file's mode.
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

// reopen opens the hints file again if it was removed or replaced.
func (l *link) reopen() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file != nil && !l.replaced() {
		return nil
	}
	if l.file != nil {
		_ = l.file.Close() // another file has its name, so no process reads it
		l.file = nil
	}
	return l.open()
}

// replaced reports whether the open file was removed or replaced.
func (l *link) replaced() bool {
	is, err := l.file.Stat()
	if err != nil {
		return true
	}
	named, err := os.Stat(l.path + hintsSuffix)
	return err != nil || !os.SameFile(is, named)
}

// Listen receives hints until the context ends or the file is removed or replaced.
func (l *link) Listen(ctx context.Context, ready func(), heard func(engine.Readers)) (err error) {
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

// read returns the readers whose slots have changed since the last read. The process's own
// heartbeats are omitted, because its readers already know about them.
func (l *link) read(last *[slots]uint64) (to engine.Readers, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var now [slots * slotBytes]byte
	if _, err := l.file.ReadAt(now[:], 0); err != nil && !errors.Is(err, io.EOF) { // it may be new
		return 0, err
	}
	for slot, readers := range [slots]engine.Readers{
		observersSlot: engine.Observers, tailersSlot: engine.Tailers, watchersSlot: engine.Watchers,
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

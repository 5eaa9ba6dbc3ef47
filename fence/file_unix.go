//go:build unix

package fence

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
)

// lockFile locks a file, or returns an error if another process holds the lock.
func lockFile(path string) (io.Closer, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		if errors.Is(err, syscall.EWOULDBLOCK) {
			err = fmt.Errorf("another process has %s open: use one process, or a database", path)
		}
		return nil, errors.Join(err, f.Close())
	}
	return &flock{f}, nil
}

type flock struct{ file *os.File }

// Close unlocks the file before closing it. A child process that is being started may briefly have
// a copy of the open file. If Close did not unlock the file, that process might keep the lock.
func (l *flock) Close() error {
	return errors.Join(syscall.Flock(int(l.file.Fd()), syscall.LOCK_UN), l.file.Close())
}

func ignoreUnsupported(err error) error { return err }

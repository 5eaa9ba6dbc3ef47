package core

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
)

// A hostLock is a file that this process has locked.
type hostLock struct {
	path string
	fd   int // not an os.File, which the garbage collector would close: see end
	id   string
}

// takeHostLock locks the file at path, and creates it if it is missing.
func takeHostLock(path string) (*hostLock, error) {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return nil, err
	}
	const flags = syscall.O_RDWR | syscall.O_CREAT | syscall.O_CLOEXEC | syscall.O_NOFOLLOW | syscall.O_NONBLOCK
	fd, err := syscall.Open(path, flags, 0o600)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	for err = syscall.EINTR; errors.Is(err, syscall.EINTR); {
		err = syscall.Flock(fd, syscall.LOCK_EX|syscall.LOCK_NB)
	}
	var st syscall.Stat_t
	if err == nil {
		err = syscall.Fstat(fd, &st)
	}
	if err == nil && st.Mode&syscall.S_IFMT != syscall.S_IFREG {
		err = syscall.EINVAL
	}
	if err != nil {
		return nil, errors.Join(&os.PathError{Op: "lock", Path: path, Err: err}, syscall.Close(fd))
	}
	id := fmt.Sprintf("%s/%x/%x", strings.TrimSpace(string(boot)), st.Dev, st.Ino)
	return &hostLock{path: path, fd: fd, id: id}, nil
}

// If free is set, end removes the file and releases the lock. Otherwise, the lock stays until the
// process ends, because some of its work may continue.
func (l *hostLock) end(free bool) {
	if l == nil || !free {
		return
	}
	_ = os.Remove(l.path)
	_ = syscall.Close(l.fd)
}

//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package examplebackend

import (
	"errors"
	"os"
	"syscall"
)

// tryLock locks an open file against every other opening of it, here and in other
// processes, without waiting; false if it is locked otherwise. Closing the file,
// and the end of the process, unlock it.
func tryLock(f *os.File, exclusive bool) (bool, error) {
	how := syscall.LOCK_SH
	if exclusive {
		how = syscall.LOCK_EX
	}
	for {
		err := syscall.Flock(int(f.Fd()), how|syscall.LOCK_NB)
		switch {
		case err == nil:
			return true, nil
		case errors.Is(err, syscall.EINTR):
		case errors.Is(err, syscall.EWOULDBLOCK):
			return false, nil
		default:
			return false, os.NewSyscallError("flock", err)
		}
	}
}

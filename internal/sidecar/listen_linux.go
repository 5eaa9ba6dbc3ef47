package sidecar

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// A lockedListener holds the socket's lock while it listens.
type lockedListener struct {
	*net.UnixListener
	lock *os.File
}

func (l *lockedListener) Close() error { return errors.Join(l.UnixListener.Close(), unlock(l.lock)) }

// Closing the file would not release the lock immediately, because a new child process has copies
// of all descriptors until it has loaded its program.
func unlock(lock *os.File) error {
	return errors.Join(unix.Flock(int(lock.Fd()), unix.LOCK_UN), lock.Close())
}

// Only the process that holds the lock on the file next to the socket may use the socket. A new
// process can therefore safely remove a killed process's socket.
func listenUnix(path string) (net.Listener, error) {
	if err := checkDir(filepath.Dir(path)); err != nil {
		return nil, err
	}
	lock, err := os.OpenFile(path+".lock", os.O_CREATE|os.O_RDWR|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("tenure: the lock of the socket: %w", err)
	}
	ln, err := listenLocked(path, lock)
	if err != nil {
		return nil, errors.Join(err, unlock(lock))
	}
	return &lockedListener{ln, lock}, nil
}

// checkDir rejects a directory to which another user may write, because that user could replace the
// socket and make clients trust false leases. It creates a missing directory.
func checkDir(dir string) error {
	info, err := os.Stat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		if err = os.Mkdir(dir, 0o700); err == nil {
			info, err = os.Stat(dir)
		}
	}
	if err != nil {
		return fmt.Errorf("tenure: the directory of the socket: %w", err)
	}
	st, known := info.Sys().(*syscall.Stat_t)
	if own := os.Geteuid(); !known || st.Uid != 0 && int64(st.Uid) != int64(own) || info.Mode().Perm()&0o022 != 0 {
		return invalid("others may write the directory %s of the socket, which is %v: use one of user %d with mode 0700", dir, info.Mode(), own)
	}
	return nil
}

func listenLocked(path string, lock *os.File) (*net.UnixListener, error) {
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, invalid("the socket %s belongs to another process that listens: end it, or choose another path", path)
	}
	switch info, err := os.Lstat(path); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, fmt.Errorf("tenure: the socket: %w", err)
	case info.Mode().Type() != fs.ModeSocket:
		return nil, invalid("%s is there and is no socket: choose another path", path)
	default:
		if err := os.Remove(path); err != nil {
			return nil, fmt.Errorf("tenure: the socket that a former process left: %w", err)
		}
	}
	// The socket file is created with the descriptor's mode, so no other mode is ever visible.
	c := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
		var failed error
		err := raw.Control(func(fd uintptr) { failed = unix.Fchmod(int(fd), 0o600) })
		return errors.Join(err, failed)
	}}
	ln, err := c.Listen(context.Background(), "unix", path)
	if err != nil {
		return nil, fmt.Errorf("tenure: the socket: %w", err)
	}
	return ln.(*net.UnixListener), nil
}

// checkPeer rejects processes of users other than the socket's owner. The kernel reports a
// process's user.
func checkPeer(c *net.UnixConn) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var cred *unix.Ucred
	var failed error
	err = raw.Control(func(fd uintptr) {
		cred, failed = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	if err = errors.Join(err, failed); err != nil {
		return err
	}
	if own := os.Geteuid(); int64(cred.Uid) != int64(own) {
		return fmt.Errorf("user %d may not use the socket of user %d: run the client as that user", cred.Uid, own)
	}
	return nil
}

func pending(c net.Conn) bool {
	s, ok := c.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := s.SyscallConn()
	if err != nil {
		return false
	}
	n := 0
	err = raw.Control(func(fd uintptr) { n, _ = unix.IoctlGetInt(int(fd), unix.SIOCINQ) })
	return err == nil && n > 0
}

//go:build unix

package route

import (
	"net"
	"syscall"
)

// ended reports whether an idle connection was closed or has received an unsolicited answer.
func ended(c net.Conn) bool {
	s, ok := c.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := s.SyscallConn()
	if err != nil {
		return false
	}
	over := false
	// The method raw.Read would wait for net/http's reading goroutine.
	err = raw.Control(func(fd uintptr) {
		var b [1]byte
		_, _, err := syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK)
		over = err != syscall.EAGAIN && err != syscall.EINTR
	})
	return err != nil || over
}

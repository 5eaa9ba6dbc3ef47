//go:build unix

package sidecar

import (
	"io/fs"
	"os"
	"syscall"
)

// withoutWaiting keeps the opening of a FIFO from waiting for its writer.
const withoutWaiting = syscall.O_NONBLOCK

// checkOwner refuses a file of another user, who may know the token. A user with special rights can
// read the file whatever its mode.
func checkOwner(path string, info fs.FileInfo) error {
	if st, ok := info.Sys().(*syscall.Stat_t); ok && int64(st.Uid) != int64(os.Geteuid()) {
		return invalid("the token file %s belongs to user %d, and this is user %d: chown it", path, st.Uid, os.Geteuid())
	}
	return nil
}

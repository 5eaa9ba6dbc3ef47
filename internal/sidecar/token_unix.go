//go:build unix

package sidecar

import (
	"io/fs"
	"os"
	"syscall"
)

// withoutWaiting is a flag with which opening a FIFO does not wait for a writer.
const withoutWaiting = syscall.O_NONBLOCK

// checkOwner refuses a file of another user, because that user may know the token. A user with
// special rights can read the file whatever its mode.
func checkOwner(path string, info fs.FileInfo) error {
	if st, ok := info.Sys().(*syscall.Stat_t); ok && int64(st.Uid) != int64(os.Geteuid()) {
		return invalid("the token file %s belongs to user %d, and this is user %d: chown it", path, st.Uid, os.Geteuid())
	}
	return nil
}

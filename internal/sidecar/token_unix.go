//go:build unix

package sidecar

import (
	"io/fs"
	"os"
	"syscall"
)

// This flag makes it possible to open a FIFO without waiting for a writer.
const withoutWaiting = syscall.O_NONBLOCK

// checkOwner rejects another user's file, because that user may know the token. A privileged
// process can read any file.
func checkOwner(path string, info fs.FileInfo) error {
	if st, ok := info.Sys().(*syscall.Stat_t); ok && int64(st.Uid) != int64(os.Geteuid()) {
		return invalid("the token file %s belongs to user %d, and this is user %d: chown it", path, st.Uid, os.Geteuid())
	}
	return nil
}

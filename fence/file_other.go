//go:build !unix

package fence

import (
	"io"
	"os"
)

// lockFile only creates the file, because this system has no flock.
func lockFile(path string) (io.Closer, error) {
	return os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
}

// ignoreUnsupported ignores every error, because this system cannot sync folders.
func ignoreUnsupported(error) error { return nil }

//go:build !unix

package fence

import (
	"io"
	"os"
)

// lockFile only creates the file, because there is no flock here.
func lockFile(path string) (io.Closer, error) {
	return os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
}

// ignoreUnsupported returns nil, because folders cannot be synced here.
func ignoreUnsupported(error) error { return nil }

//go:build unix

package sidecar

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/tenure-go/tenure/core"
)

// TestReadTokenOfOthers: a FIFO is refused immediately, although nothing writes to it. A file of
// another user is also refused, because that user knows the token.
func TestReadTokenOfOthers(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	fifo := filepath.Join(dir, "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadToken(fifo); !errors.Is(err, core.ErrInvalid) || !strings.Contains(err.Error(), "not a regular file") {
		t.Errorf("a FIFO: got %v", err)
	}
	if os.Geteuid() != 0 {
		t.Skip("only root can read a file of another user with mode 0600")
	}
	file := filepath.Join(dir, "token")
	if err := os.WriteFile(file, []byte(secret), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(file, 65534, 65534); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadToken(file); !errors.Is(err, core.ErrInvalid) || !strings.Contains(err.Error(), "belongs to user 65534") {
		t.Errorf("a file of another user: got %v", err)
	}
}

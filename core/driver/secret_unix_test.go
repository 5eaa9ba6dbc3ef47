//go:build unix

package driver_test

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tenure-go/tenure/core/driver"
)

// TestSecretOfFIFO: a file that is not regular is refused, and no call waits for its writer.
func TestSecretOfFIFO(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{path, "/dev/null", t.TempDir()} {
		ended := make(chan error, 1)
		for what, read := range map[string]func() error{
			"":          func() error { _, err := driver.ReadSecret(name); return err },
			"ca_file":   func() error { _, err := driver.TLSFiles{CA: name}.Config(); return err },
			"cert_file": func() error { _, err := driver.TLSFiles{Cert: name, Key: name}.Config(); return err },
		} {
			go func() { ended <- read() }()
			select {
			case err := <-ended:
				if err == nil || !strings.Contains(err.Error(), "regular file") || strings.Contains(err.Error(), name) ||
					!strings.HasPrefix(err.Error(), what) {
					t.Errorf("%s %s: %v", what, name, err)
				}
			case <-time.After(time.Minute):
				t.Fatalf("%s %s: still waiting", what, name)
			}
		}
	}
}

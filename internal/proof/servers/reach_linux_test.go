package servers_test

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/tenure-go/tenure/internal/proof/servers"
)

// TestImpassableFolder puts temporary files where a server's user has no access.
func TestImpassableFolder(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root starts servers as another user")
	}
	closed, err := os.MkdirTemp("", "closed")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(closed) })
	t.Setenv("TMPDIR", closed) // made with mode 0700
	for _, kind := range []servers.Kind{servers.Postgres, servers.MariaDB} {
		s, err := servers.Start(t.Context(), kind, nil)
		if errors.Is(err, servers.ErrUnavailable) && !servers.Required(kind) {
			continue
		}
		if err == nil {
			t.Errorf("%s starts below a folder that its user may not pass through", kind)
			s.Close()
			continue
		}
		if !strings.Contains(err.Error(), "may not pass through "+closed+": set TMPDIR") {
			t.Errorf("%s: got %v, want advice", kind, err)
		}
		if left, err := os.ReadDir(closed); err != nil || len(left) > 0 {
			t.Errorf("left behind: %v, %v", left, err)
		}
	}
}

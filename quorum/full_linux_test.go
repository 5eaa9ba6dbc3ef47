package quorum

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tenure-go/tenure/internal/proof/ample"
)

// TestFullDisk: a member whose disk is full ends its process and logs the reason, and the others
// continue. After there is space again, the member starts with its data.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	dir := c.setting("a").Dir
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	// etcd allocates two files of 64 MB for its log.
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=160m,mode=0700"); err != nil {
		t.Skipf("only root can mount a small disk: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	procs := c.first(false)
	c.progress()
	ballast := filepath.Join(dir, "member", "ballast")
	fill(t, ballast)
	client := c.client()
	large := string(make([]byte, 1<<20))
	ample.Wait(t, "the member with the full disk has not ended", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		_, _ = client.Put(ctx, "ballast", large) // the database grows
		select {
		case <-procs["a"].read:
			return true
		default:
			return false
		}
	})
	procs["a"].end(syscall.Signal(0))
	if said := strings.Join(procs["a"].said, "\n"); !strings.Contains(said, "no space left on device") {
		t.Errorf("the member did not log the reason: %s", said)
	}
	c.progress()
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	c.start("a").await("started")
	c.progress()
	c.check()
}

// fill writes to a file until the disk is full.
func fill(t *testing.T, path string) {
	t.Helper()
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	block := make([]byte, 64<<10)
	for size := len(block); size > 0; {
		n, err := file.Write(block[:size])
		if err != nil && n == 0 {
			size /= 2
		}
	}
}

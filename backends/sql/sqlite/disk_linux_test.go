package sqlite_test

import (
	"errors"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/tenure-go/tenure/backends/sql/sqlite"
	"github.com/tenure-go/tenure/core/driver"
)

func TestReadOnlyIsRefused(t *testing.T) {
	t.Parallel()
	dir := mountTmpfs(t, "1m")
	path := filepath.Join(dir, "app.db")
	b, err := sqlite.Open(t.Context(), path, "app", nil)
	if err != nil {
		t.Fatal(err)
	}
	b.Close()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", syscall.MS_REMOUNT|syscall.MS_RDONLY, ""); err != nil {
		t.Skipf("cannot make a file system read-only: %v", err)
	}
	refuse(t, path, "app", nil, nil, "cannot be written")
}

// mountTmpfs mounts a small file system, which takes root.
func mountTmpfs(t *testing.T, size string) string {
	t.Helper()
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size="+size); err != nil {
		t.Skipf("cannot mount a small file system: %v", err)
	}
	t.Cleanup(func() { syscall.Unmount(dir, syscall.MNT_DETACH) })
	return dir
}

func TestDiskFull(t *testing.T) {
	t.Parallel()
	b := open(t, filepath.Join(mountTmpfs(t, "1m"), "app.db"), nil)
	s := join(t, b, "n1")
	fence := acquire(t, s, "a", driver.Owner{}).Fence
	big := string(make([]byte, 100_000))
	var refused error
	number := driver.WriteNo(1)
	for ; number < 100 && refused == nil; number++ {
		_, refused = s.Commit(t.Context(), []driver.Write{appendOf(fence, number, big)})
	}
	if !errors.Is(refused, driver.ErrRetry) {
		t.Fatalf("commit on a full disk: %v, want ErrRetry", refused)
	}
	page, err := b.ReadLog(t.Context(), "a", 0, 0)
	if err != nil || page.Head.Number != number-2 {
		t.Errorf("head %+v after commit %d was refused: %v", page.Head, number-1, err)
	}
}

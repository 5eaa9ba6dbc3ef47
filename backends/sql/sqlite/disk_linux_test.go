package sqlite_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
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

// mountTmpfs mounts a small file system, which needs root.
func mountTmpfs(t *testing.T, size string) string {
	t.Helper()
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size="+size); err != nil {
		t.Skipf("cannot mount a small file system: %v", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
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

// TestCloseSaysThatTheDiskIsFull: if the disk has no room for writing back a lost log, Close
// reports this. The database is then refused (I1).
func TestCloseSaysThatTheDiskIsFull(t *testing.T) {
	t.Parallel()
	path := filepath.Join(mountTmpfs(t, "2m"), "app.db")
	b, err := sqlite.Open(t.Context(), path, "app", nil)
	if err != nil {
		t.Fatal(err)
	}
	s := join(t, b, "n1")
	fence := acquire(t, s, "a", driver.Owner{}).Fence
	for i := range driver.WriteNo(5) {
		commit(t, s, appendOf(fence, i+1, string(make([]byte, 50_000))))
	}
	if err := os.Remove(path + "-wal"); err != nil {
		t.Fatal(err)
	}
	filler := filepath.Join(filepath.Dir(path), "filler")
	if err := os.WriteFile(filler, make([]byte, 4<<20), 0o600); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("the disk is not full: %v", err)
	}
	err = b.Close()
	if !errors.Is(err, driver.ErrStoreChanged) || !strings.Contains(err.Error(), "it could not be written back: ") {
		t.Errorf("Close: %v, want ErrStoreChanged that says why the log is lost", err)
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	refuse(t, path, "app", nil, driver.ErrStoreChanged, "end every process that uses it")
}

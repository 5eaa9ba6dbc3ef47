package main

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/tenure-go/tenure/backends/sql/sqlite"
)

// smallDisk mounts a file system of the given size.
func smallDisk(t *testing.T, options string) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root may mount a small disk")
	}
	dir := t.TempDir()
	if err := syscall.Mount("none", dir, "tmpfs", 0, options); err != nil {
		t.Skipf("this system lets nobody mount a small disk: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// TestRefusedDisk: a disk without room, or a read-only disk, ends the run with one line, exit code
// 2, and no file.
func TestRefusedDisk(t *testing.T) {
	t.Run("full", func(t *testing.T) {
		for _, size := range []string{"40k", "64k", "100k"} {
			dir := smallDisk(t, "size="+size)
			refuse(t, []string{"-dsn", filepath.Join(dir, "board.db")}, "make room")
			if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
				t.Errorf("%s: left behind: %v, %v", size, left, err)
			}
		}
	})
	t.Run("read-only", func(t *testing.T) {
		dir := smallDisk(t, "size=8m")
		path := filepath.Join(dir, "board.db")
		b, err := sqlite.Open(t.Context(), path, "earlier", nil)
		if err != nil {
			t.Fatal(err)
		}
		b.Close()
		if err := syscall.Mount("none", dir, "tmpfs", syscall.MS_REMOUNT|syscall.MS_RDONLY, "size=8m"); err != nil {
			t.Fatal(err)
		}
		refuse(t, []string{"-dsn", path}, "cannot be written")
		refuse(t, []string{"-dsn", filepath.Join(dir, "other.db")}, "cannot be written")
	})
}

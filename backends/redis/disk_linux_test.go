package redis

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/proof/ample"
	"github.com/tenure-go/tenure/internal/proof/servers"
	"github.com/tenure-go/tenure/internal/proof/sqlfault"
)

// TestDiskFull: a server with appendfsync always ends when its disk is full. After a restart with
// free space, it has its acknowledged writes. A server with everysec, for AllowLoss, refuses writes
// until there is free space.
func TestDiskFull(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("mounting a disk needs root")
	}
	for _, fsync := range []string{"always", "everysec"} {
		t.Run(fsync, func(t *testing.T) {
			t.Parallel()
			server := servers.New(t, servers.Redis, &servers.Options{DiskBytes: 8 << 20, Config: []string{"appendfsync " + fsync}})
			c := config(t, server)
			admin, b := newAdmin(t, c), openOn(t, c, Options{AllowLoss: fsync != "always"})
			s := sqlfault.Join(t, b, "n1")
			f := claims(t, s, "s")
			room := fillDisk(t, admin.ConfigGet(t.Context(), "dir").Val()["dir"])
			acknowledged, err := 0, error(nil)
			for err == nil && acknowledged < 10_000 {
				var res []driver.CommitResult
				res, err = s.Commit(t.Context(), []driver.Write{
					sqlfault.AppendOf(f, driver.WriteNo(acknowledged+1), make([]byte, 1024)),
				})
				if err == nil {
					err = res[0].Err
				}
				if err == nil {
					acknowledged++
				}
			}
			t.Logf("after %d writes: %v", acknowledged, err)
			if refused := errors.Is(err, driver.ErrRetry) && strings.Contains(err.Error(), "MISCONF"); refused != (fsync == "everysec") {
				t.Errorf("a write to a full disk: %v", err)
			}
			if fsync == "always" {
				ample.Wait(t, "the server does not end itself", func() bool { return admin.Ping(t.Context()).Err() != nil })
				if err := s.Beat(t.Context()); !errors.Is(err, driver.ErrRetry) {
					t.Errorf("a heartbeat meanwhile: %v; want ErrRetry", err)
				}
			}
			room()
			if fsync == "always" {
				if err := server.Restart(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			ample.Wait(t, "heartbeats are not taken again", func() bool {
				err := s.Beat(t.Context())
				if err != nil && !errors.Is(err, driver.ErrRetry) {
					t.Fatalf("a heartbeat afterwards: %v", err)
				}
				return err == nil
			})
			page, err := b.ReadLog(t.Context(), "s", 0, 20_000)
			if err != nil {
				t.Fatal(err)
			}
			// If the write that met the full disk has an unknown outcome, it may or may not be in
			// the log.
			written := int(page.Head.Number)
			if written != acknowledged && (fsync != "always" || written != acknowledged+1) {
				t.Errorf("%d writes are in the log; %d were acknowledged", written, acknowledged)
			}
			sqlfault.Commit(t, s, sqlfault.AppendOf(f, page.Head.Number+1, []byte("after")))
		})
	}
}

// fillDisk takes all but 64 KiB of a disk's free space, until room is called.
func fillDisk(t *testing.T, dir string) (room func()) {
	t.Helper()
	path := filepath.Join(dir, "filler")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for block := make([]byte, 4096); err == nil; {
		_, err = f.Write(block)
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	info, err := f.Stat()
	if err == nil {
		err = f.Truncate(info.Size() - 64<<10)
	}
	if err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
}

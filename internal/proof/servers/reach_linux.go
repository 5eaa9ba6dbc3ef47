package servers

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// reach checks whether the server's account can reach the data. If the account cannot reach the
// data, the server fails with only "permission denied". The check runs a command as the account,
// because only the kernel can tell for certain.
func (l *local) reach(ctx context.Context) error {
	err := l.run(ctx, "", "true")
	if !errors.Is(err, fs.ErrPermission) {
		return err
	}
	where := l.account.barrier(l.path("data"))
	if where == "" {
		where = filepath.Dir(l.dir.path)
	}
	return fmt.Errorf("it does not run as root, and its user (uid %d) may not pass through %s: set TMPDIR to a folder "+
		"that every user may pass through, such as /tmp, or run this as another user than root: %w",
		l.account.uid, where, err)
}

// barrier returns the first folder on the path whose mode keeps the account out, or "".
func (a *account) barrier(path string) string {
	blocked := ""
	for ; ; path = filepath.Dir(path) {
		info, err := os.Stat(path)
		if err != nil {
			return path
		}
		pass := fs.FileMode(0o001)
		if stat, ok := info.Sys().(*syscall.Stat_t); ok {
			switch {
			case stat.Uid == a.uid:
				pass = 0o100
			case stat.Gid == a.gid:
				pass = 0o010
			}
		}
		if info.Mode()&pass == 0 {
			blocked = path
		}
		if path == filepath.Dir(path) {
			return blocked
		}
	}
}

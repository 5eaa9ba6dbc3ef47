package servers

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"syscall"
	"time"
)

const (
	directoryPrefix = "tenure-server-"
	// maxSocketPath is the maximum length of a directory's path. With PostgreSQL's socket name, the
	// path must fit into a Unix socket address.
	maxSocketPath = 80
)

//go:embed janitor.sh
var janitorScript string

// plainPath matches paths that need no quoting in configuration files and in the janitor's
// patterns.
var plainPath = regexp.MustCompile(`^/[A-Za-z0-9/._-]+$`)

// directory is a server's directory, with its configuration, data and log. While the owner is
// alive, a file in the directory is locked.
type directory struct {
	path    string
	lock    *os.File
	alive   *os.File // the janitor's standard input
	janitor *exec.Cmd
}

// newDirectory creates a directory and starts its janitor. Other users can traverse the directory
// but cannot list it, because the server may run as another user.
func newDirectory(ctx context.Context) (d *directory, err error) {
	if err := sweep(ctx); err != nil {
		return nil, err
	}
	path, err := os.MkdirTemp("", directoryPrefix)
	if err != nil {
		return nil, err
	}
	d = &directory{path: path}
	defer func() {
		if err != nil {
			if d.janitor == nil {
				err = errors.Join(err, os.RemoveAll(path))
			} else {
				err = errors.Join(err, d.remove())
			}
		}
	}()
	if !plainPath.MatchString(path) || len(path) > maxSocketPath {
		return d, fmt.Errorf("directory %q is too long or has unusual characters: set TMPDIR to another", path)
	}
	if err := os.Chmod(path, 0o711); err != nil {
		return d, err
	}
	if d.lock, err = tryLock(path); err != nil {
		return d, err
	}
	read, write, err := os.Pipe()
	if err != nil {
		return d, err
	}
	defer read.Close() //nolint:errcheck // the janitor has its own
	janitor := cleaner(context.WithoutCancel(ctx), path)
	janitor.Stdin = read
	if err := janitor.Start(); err != nil {
		return d, errors.Join(err, write.Close())
	}
	d.janitor, d.alive = janitor, write
	return d, nil
}

func cleaner(ctx context.Context, path string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "sh", "-c", janitorScript, "janitor", path)
	cmd.Dir = "/"
	// The janitor runs in a separate session, so an interrupt from the terminal does not reach it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return cmd
}

// remove makes the janitor remove the directory, and waits for it to finish. The janitor has a time
// limit.
func (d *directory) remove() error {
	err := errors.Join(d.alive.Close(), d.janitor.Wait())
	if d.lock != nil {
		err = errors.Join(err, d.lock.Close())
	}
	if _, there := os.Lstat(d.path); there == nil {
		err = errors.Join(err, fmt.Errorf("%s could not be removed: remove it by hand", d.path))
	}
	return err
}

// tryLock locks a server's directory for as long as the returned file is open. If the owner is
// alive, tryLock fails with EWOULDBLOCK.
func tryLock(path string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(path, "lock"), os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// sweep removes the directories of owners and janitors that died together. It removes only this
// user's directories, except those that are being created.
func sweep(ctx context.Context) error {
	paths, err := filepath.Glob(filepath.Join(os.TempDir(), directoryPrefix+"*"))
	if err != nil {
		return err
	}
	for _, path := range paths {
		info, err := os.Lstat(path)
		if err != nil || !info.IsDir() || time.Since(info.ModTime()) < time.Minute || !plainPath.MatchString(path) {
			continue
		}
		if stat, ok := info.Sys().(*syscall.Stat_t); !ok || int(stat.Uid) != os.Getuid() {
			continue
		}
		lock, err := tryLock(path)
		if err != nil {
			continue
		}
		// Another process may sweep at the same time, so only the final result matters.
		err = cleaner(ctx, path).Run()
		_ = lock.Close()
		if _, there := os.Lstat(path); there == nil {
			return fmt.Errorf("%s is left from an earlier run and could not be removed: %w", path, err)
		}
	}
	return nil
}

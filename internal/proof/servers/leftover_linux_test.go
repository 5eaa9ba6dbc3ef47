package servers

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tenure-go/tenure/internal/proof/ample"
)

// childVariable makes the test binary the process that dies in TestNothingIsLeftBehind.
const childVariable = "TENURE_SERVERS_TEST_CHILD"

// child starts servers, stops one of them with connections open, prints their places, and waits.
// When its input ends, it panics.
func child() {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	must := func(err error) {
		if err != nil {
			fmt.Println("error", err)
			os.Exit(1)
		}
	}
	pg, err := Start(ctx, Postgres, nil)
	must(err)
	maria, err := Start(ctx, MariaDB, nil)
	must(err)
	bouncer, err := Start(ctx, PgBouncer, &Options{Upstream: pg})
	must(err)
	db, err := sql.Open("pgx", pg.User().Database("postgres").Reveal())
	must(err)
	must(db.PingContext(ctx))
	must(pg.Stop(ctx))
	for _, s := range []*Server{pg, maria, bouncer} {
		fmt.Println("directory", s.inst.(*local).dir.path)
	}
	fmt.Println("ready")
	_, _ = io.Copy(io.Discard, os.Stdin)
	panic("as the test wants it")
}

// TestNothingIsLeftBehind makes a process with running and stopped servers die in three ways,
// without its deferred calls.
func TestNothingIsLeftBehind(t *testing.T) {
	t.Parallel()
	for _, kind := range []Kind{Postgres, MariaDB, PgBouncer} {
		var err error
		switch kind {
		case Postgres:
			_, err = postgresRecipe(nil)
		case MariaDB:
			_, err = mariadbRecipe()
		case PgBouncer:
			_, err = lookPath("pgbouncer")
			if err != nil {
				err = unavailable(PgBouncer, "no pgbouncer")
			}
		}
		Unavailable(t, kind, err)
	}
	for name, end := range map[string]func(cmd *exec.Cmd, stdin io.Closer) error{
		"SIGKILL": func(cmd *exec.Cmd, _ io.Closer) error { return cmd.Process.Kill() },
		"SIGINT":  func(cmd *exec.Cmd, _ io.Closer) error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGINT) },
		"panic":   func(_ *exec.Cmd, stdin io.Closer) error { return stdin.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd := exec.CommandContext(bounded(t, 2*startTimeout), os.Args[0])
			cmd.Env = append(os.Environ(), childVariable+"=1", "TENURE_POSTGRES_DSN=", "TENURE_MYSQL_DSN=")
			cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
			stdin, err := cmd.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			stdout, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			var directories []string
			ready := false
			for lines := bufio.NewScanner(stdout); !ready && lines.Scan(); {
				if path, ok := strings.CutPrefix(lines.Text(), "directory "); ok {
					directories = append(directories, path)
				} else if ready = lines.Text() == "ready"; !ready {
					t.Error(lines.Text())
				}
			}
			if len(directories) != 3 {
				t.Fatalf("got directories %v, want 3", directories)
			}
			for _, path := range directories {
				if pids, err := processes(filepath.Join(path, "data")); err != nil || len(pids) == 0 {
					t.Errorf("got processes %v, %v in %s before the end, want some", pids, err, path)
				}
			}
			segments := sharedMemory(t, directories[0])
			if err := end(cmd, stdin); err != nil {
				t.Error(err)
			}
			if err := cmd.Wait(); err == nil {
				t.Error("the child ended well, want it dead")
			}
			for _, path := range directories {
				eventually(t, "the clean-up of "+path, func() bool {
					pids, err := processes(filepath.Join(path, "data"))
					_, there := os.Lstat(path)
					return err == nil && len(pids) == 0 && errors.Is(there, os.ErrNotExist)
				})
			}
			if now := listed(t); strings.Contains(now, segments) {
				t.Errorf("segment %s of shared memory is still there:\n%s", segments, now)
			}
		})
	}
}

// sharedMemory returns the id of a PostgreSQL's segment, which must exist.
func sharedMemory(t *testing.T, dir string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "data", "postmaster.pid"))
	if err != nil {
		t.Fatal(err)
	}
	key := strings.Fields(strings.Split(string(text), "\n")[6])[1]
	id := " " + key + " "
	if !strings.Contains(listed(t), id) {
		t.Fatalf("segment %s is not listed", key)
	}
	return id
}

func listed(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("/proc/sysvipc/shm")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestSweep: if an owner and its janitor died together, the directory is removed. A new directory,
// or one with an owner, stays.
func TestSweep(t *testing.T) {
	tmp, err := os.MkdirTemp("", "tenure-sweep-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(tmp) })
	t.Setenv("TMPDIR", tmp)
	mkdir := func(name string, age time.Duration) string {
		path := filepath.Join(tmp, directoryPrefix+name)
		if err := os.MkdirAll(filepath.Join(path, "data"), 0o700); err != nil {
			t.Fatal(err)
		}
		then := time.Now().Add(-age)
		if err := os.Chtimes(path, then, then); err != nil {
			t.Fatal(err)
		}
		return path
	}
	stale, fresh, owned := mkdir("stale", time.Hour), mkdir("fresh", 0), mkdir("owned", time.Hour)
	lock, err := tryLock(owned)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	then := time.Now().Add(-time.Hour)
	if err := os.Chtimes(owned, then, then); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "sleep", "600")
	cmd.Dir = filepath.Join(stale, "data")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	waited := startedWait(cmd)
	if err := sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	select {
	case <-waited:
	case <-bounded(t, ample.Time).Done():
		t.Error("the process of a stale directory still runs")
	}
	for path, want := range map[string]bool{stale: false, fresh: true, owned: true} {
		if _, err := os.Lstat(path); (err == nil) != want {
			t.Errorf("%s: got there %v, want %v", path, err == nil, want)
		}
	}
}

func startedWait(cmd *exec.Cmd) <-chan error {
	c := make(chan error, 1)
	go func() { c <- cmd.Wait() }()
	return c
}

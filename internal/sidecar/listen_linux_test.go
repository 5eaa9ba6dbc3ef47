package sidecar

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/tenure-go/tenure/backends/memory"
	"github.com/tenure-go/tenure/core"
)

func TestListen(t *testing.T) {
	t.Parallel()
	for _, address := range []string{"", "8650", ":8650", "localhost:8650", "0.0.0.0:8650", "[::]:8650", "192.0.2.1:8650",
		"[::ffff:192.0.2.1]:8650", "[fe80::1%lo]:8650", "127.0.0.1", "unix:", "/run/tenure.sock", "unix:@tenure", "unix:@", "unix:\x00tenure",
		"unix:" + strings.Repeat("@", 5000)} {
		if ln, err := Listen(address); !errors.Is(err, core.ErrInvalid) || len(err.Error()) > 1000 {
			t.Errorf("Listen(%q): got %v, %v, want ErrInvalid", address, ln, err)
		}
	}
	ln, err := Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b, err := memory.Open(t.Context(), memory.New(), "test", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	s, err := New(b, &Options{Elector: &core.Options{Logger: slog.New(slog.DiscardHandler)}})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Serve(t.Context(), ln); !errors.Is(err, core.ErrInvalid) || !strings.Contains(err.Error(), "token file") {
		t.Errorf("TCP without a token: got %v, want ErrInvalid", err)
	}
	if _, err := New(b, &Options{MaxTails: -1}); !errors.Is(err, core.ErrInvalid) {
		t.Errorf("MaxTails -1: got %v, want ErrInvalid", err)
	}
}

func TestSocket(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "run", "s")
	ln, err := Listen("unix:" + path)
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{path, path + ".lock"} {
		if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: got mode %v (%v), want 0600", file, info.Mode(), err)
		}
	}
	if _, err := Listen("unix:" + path); !errors.Is(err, core.ErrInvalid) {
		t.Errorf("a second listener: got %v, want ErrInvalid", err)
	}
	if c, err := net.Dial("unix", path); err != nil {
		t.Errorf("the first listener's socket is gone: %v", err)
	} else {
		_ = c.Close()
	}
	ln.(*lockedListener).SetUnlinkOnClose(false) // as one that was killed
	if err := ln.Close(); err != nil {
		t.Error(err)
	}
	if ln, err = Listen("unix:" + path); err != nil {
		t.Fatalf("beside a socket that was left: %v", err)
	}
	if err := ln.Close(); err != nil {
		t.Error(err)
	}
	if err := os.WriteFile(path, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Listen("unix:" + path); !errors.Is(err, core.ErrInvalid) {
		t.Errorf("where a file is: got %v, want ErrInvalid", err)
	}
	if text, err := os.ReadFile(path); err != nil || string(text) != "precious" {
		t.Errorf("the file has %q (%v)", text, err)
	}
}

// TestSocketDirectory: nothing is written into a directory to which another user may write, because
// that user could replace the socket. A missing directory is created.
func TestSocketDirectory(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "run")
	link := dir + "-link"
	if err := errors.Join(os.Mkdir(dir, 0o700), os.Symlink(dir, link)); err != nil {
		t.Fatal(err)
	}
	refused := func(what, dir string) {
		t.Helper()
		ln, err := Listen("unix:" + filepath.Join(dir, "s"))
		if !errors.Is(err, core.ErrInvalid) || !strings.Contains(err.Error(), "mode 0700") {
			t.Errorf("%s: got %v, %v, want ErrInvalid", what, ln, err)
		}
		if got, err := os.ReadDir(dir); err != nil || len(got) > 0 {
			t.Errorf("%s: the directory has %v (%v)", what, got, err)
		}
	}
	for _, mode := range []os.FileMode{0o777, 0o777 | os.ModeSticky, 0o775, 0o720, 0o702} {
		if err := os.Chmod(dir, mode); err != nil {
			t.Fatal(err)
		}
		refused(mode.String(), dir)
		refused("a link to "+mode.String(), link)
	}
	for _, mode := range []os.FileMode{0o700, 0o755} {
		if err := os.Chmod(dir, mode); err != nil {
			t.Fatal(err)
		}
		ln, err := Listen("unix:" + filepath.Join(link, "s"))
		if err != nil {
			t.Fatalf("%v: %v", mode, err)
		}
		if err := errors.Join(ln.Close(), os.Remove(filepath.Join(dir, "s.lock"))); err != nil {
			t.Error(err)
		}
	}
	missing := filepath.Join(dir, "missing")
	ln, err := Listen("unix:" + filepath.Join(missing, "s"))
	if err != nil {
		t.Fatal(err)
	}
	if err := ln.Close(); err != nil {
		t.Error(err)
	}
	if info, err := os.Stat(missing); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("a directory that was missing: got %v (%v)", info.Mode(), err)
	}
	if ln, err := Listen("unix:" + filepath.Join(dir, "no", "such", "s")); err == nil {
		t.Errorf("two directories that are missing: got %v", ln.Addr())
	}
	if os.Geteuid() != 0 {
		t.Skip("only root can give a directory to another user")
	}
	if err := errors.Join(os.RemoveAll(missing), os.Chown(dir, 65534, 65534)); err != nil {
		t.Fatal(err)
	}
	refused("another user's", dir)
}

// TestSocketBesideFork: a closed listener releases its lock, even if a forked child has not started
// its program and still has a copy of the descriptor.
func TestSocketBesideFork(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "run", "s")
	ln, err := Listen("unix:" + path)
	if err != nil {
		t.Fatal(err)
	}
	inherited, err := syscall.Dup(int(ln.(*lockedListener).lock.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(inherited)
	if err := ln.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := Listen("unix:" + path)
	if err != nil {
		t.Fatalf("after Close: %v", err)
	}
	if err := again.Close(); err != nil {
		t.Error(err)
	}
}

// TestPeer: another user is refused, even if the socket's mode permits access.
func TestPeer(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "tenure-peer-") // that of the test is its user's
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "s")
	ln, err := Listen("unix:" + path)
	if err != nil {
		t.Fatal(err)
	}
	b, err := memory.Open(t.Context(), memory.New(), "test", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	var log journal
	s, err := New(b, &Options{Elector: &core.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx, ln) }()
	defer func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(context.Context, string, string) (net.Conn, error) { return net.Dial("unix", path) }}}
	resp, err := client.Get("http://sidecar/v1/openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if err != nil || resp.StatusCode != http.StatusOK || string(text) != string(openAPI) {
		t.Errorf("the same user: got %d %.50s (%v)", resp.StatusCode, text, err)
	}

	if os.Geteuid() != 0 {
		t.Skip("only root can run a client as another user")
	}
	const script = `import socket, sys
s = socket.socket(socket.AF_UNIX)
s.connect(sys.argv[1])
s.sendall(b"GET /v1/openapi.json HTTP/1.0\r\n\r\n")
print(s.recv(4096).decode())`
	python, err := exec.LookPath("/usr/bin/python3")
	if err != nil {
		t.Skip("no Python that another user may run")
	}
	as := func() (string, error) {
		cmd := exec.CommandContext(t.Context(), python, "-c", script, path)
		cmd.Dir = "/"
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if out, err := as(); err == nil || !strings.Contains(out, "PermissionError") {
		t.Errorf("another user, mode 0600: got %s, want that it cannot connect", out)
	}
	if err := os.Chmod(path, 0o666); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if out, err := as(); strings.Contains(out, "HTTP") || err == nil && strings.TrimSpace(out) != "" {
			t.Errorf("another user, mode 0666: got %s (%v), want that the connection is closed", out, err)
		}
	}
	if text := log.String(); strings.Count(text, "its user is another") != 1 || !strings.Contains(text, "user 65534") {
		t.Errorf("three connections of another user: the log has %s, want one line that names it", text)
	}
}

type journal struct {
	mu   sync.Mutex
	text strings.Builder
}

func (j *journal) Write(b []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(b)
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.String()
}

func TestReadToken(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "token")
	for _, c := range []struct {
		text string
		mode os.FileMode
		want string // in the error
	}{
		{secret + "\n", 0o600, ""},
		{secret, 0o400, ""},
		{secret, 0o640, "mode 0640"},
		{secret, 0o604, "mode 0604"},
		{"short", 0o600, "outside 32 to 4096"},
		{strings.Repeat("x", 4097), 0o600, "outside 32 to 4096"},
		{secret + " " + secret, 0o600, "blanks"},
		{secret + "\n" + secret, 0o600, "line ends"},
	} {
		_ = os.Remove(path)
		if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, c.mode); err != nil {
			t.Fatal(err)
		}
		got, err := ReadToken(path)
		switch {
		case c.want == "" && (err != nil || got != secret):
			t.Errorf("%q: got %q, %v", c.text, got, err)
		case c.want != "" && (!errors.Is(err, core.ErrInvalid) || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), secret)):
			t.Errorf("%.40q with mode %o: got %v, want an error with %q", c.text, c.mode, err, c.want)
		}
	}
	if _, err := ReadToken(filepath.Dir(path)); !errors.Is(err, core.ErrInvalid) {
		t.Errorf("a directory: got %v, want ErrInvalid", err)
	}
}

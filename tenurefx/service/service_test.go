package service_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/fx"

	"github.com/tenure-go/tenure/backends/sql/sqlite"
	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/internal/proof/ample"
	"github.com/tenure-go/tenure/tenurefx/service"
)

// file writes a configuration with additional keys, and returns its path.
func file(t *testing.T, keys string) string {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, "service.yaml")
	text := fmt.Sprintf("tenure: {ttl: 10s, lock_dir: none, backends: {sqlite: {path: '%s', namespace: app}}, sharding: {shards: [a, b]}%s}",
		filepath.Join(dir, "t.db"), keys)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func serve(ctx context.Context, _ *core.Lease) error {
	<-ctx.Done()
	return nil
}

// at is a log handler that keeps the logged address of the board.
type at struct {
	slog.Handler
	board chan string
}

func (a at) Handle(_ context.Context, r slog.Record) error {
	r.Attrs(func(x slog.Attr) bool {
		if x.Key == "board" {
			a.board <- strings.TrimSuffix(x.Value.String(), "/tenure/")
		}
		return true
	})
	return nil
}

// TestModule: with the key listen, there are probes, the board and metrics from start to stop. An
// open board does not delay the stop.
func TestModule(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), ample.Time)
	defer cancel()
	found := at{slog.NewTextHandler(io.Discard, nil), make(chan string, 1)}
	app := fx.New(service.Module(file(t, ", listen: '127.0.0.1:0'"), serve, sqlite.Opener()), fx.Supply(slog.New(found)))
	if err := app.Start(ctx); err != nil {
		t.Fatal(err)
	}
	url := <-found.board
	get := func(path string) string {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, url+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.Status + " " + string(body)
	}
	for path, want := range map[string]string{
		"/tenure/readyz": "200 ", "/tenure/": "<title>", "/metrics": "\ntenure_member_joined 1\n", "/metrics ": "go_goroutines",
	} {
		path = strings.TrimSpace(path)
		if got := ""; !ample.Soon(ctx, func() bool { got = get(path); return strings.Contains(got, want) }) {
			t.Errorf("%s has no %q: %s", path, want, got)
		}
	}
	stream, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/tenure/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(stream)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if line, err := bufio.NewReader(resp.Body).ReadString('\n'); err != nil {
		t.Fatalf("the board's stream begins with %q, %v", line, err)
	}
	if err := app.Stop(ctx); err != nil {
		t.Error(err)
	}
	if _, err := http.Get(url); err == nil { //nolint:bodyclose // there is no answer
		t.Error("it still listens")
	}
}

// TestFlood: connections that send nothing block clients for at most the time limit of a request,
// and do not delay a stop.
func TestFlood(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: it takes as long as a request may take")
	}
	ctx, cancel := context.WithTimeout(t.Context(), ample.Time)
	defer cancel()
	found := at{slog.NewTextHandler(io.Discard, nil), make(chan string, 1)}
	app := fx.New(service.Module(file(t, ", listen: '127.0.0.1:0'"), serve, sqlite.Opener()), fx.Supply(slog.New(found)))
	if err := app.Start(ctx); err != nil {
		t.Fatal(err)
	}
	url := <-found.board
	for range 400 {
		c, err := new(net.Dialer).DialContext(ctx, "tcp", strings.TrimPrefix(url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := io.WriteString(c, "GET /metrics HTTP/1.1\r\nHost: localhost\r\n"); err != nil {
			t.Fatal(err)
		}
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%+v, %v", resp, err)
	}
	resp.Body.Close()
	if err := app.Stop(ctx); err != nil {
		t.Error(err)
	}
}

// TestRefused: mistakes are reported when the application is created or started, with the name of
// the key.
func TestRefused(t *testing.T) {
	taken, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	for name, c := range map[string]struct{ path, want string }{
		"no file":      {filepath.Join(t.TempDir(), "none.yaml"), "none.yaml"},
		"no port":      {file(t, ", listen: localhost"), `tenure.listen: "localhost" is not an address with a port`},
		"sharding":     {file(t, ", listen: ''"), ""},
		"a port taken": {file(t, ", listen: '"+taken.Addr().String()+"'"), "address already in use"},
	} {
		app := fx.New(fx.Supply(slog.New(slog.DiscardHandler)), service.Module(c.path, serve, sqlite.Opener()))
		err := app.Err()
		if err == nil {
			if err = app.Start(t.Context()); err == nil {
				err = app.Stop(t.Context())
			}
		}
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: got %v, want %q", name, err, c.want)
		}
	}
}

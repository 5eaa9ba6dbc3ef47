package fence_test

import (
	"bufio"
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/tenure-go/tenure/backends/sql/sqlite"
	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/fence/fencegrpc"
	"github.com/tenure-go/tenure/internal/proof/ample"
)

// The zombie test: real processes elect a leader on SQLite, and write to a resource outside SQLite.
// The leader is stopped with SIGSTOP, and another process takes over and writes. Then the first
// leader is resumed and continues its write. Writers do not check their lease before they write, as
// if they had been stopped right after such a check.

const (
	writerArg = "tenure-fence-writer"
	zombieTTL = 5 * time.Second
)

// write is one write to a resource: err matches driver.ErrFenced if it was refused.
type write func(ctx context.Context, f driver.Fence) error

// writer is the main function of a process. Its arguments are the database of the election, and the
// kind and the address of the resource. writer prints "leads TOKEN" when the process leads. For
// each line of input, it writes once, and prints "accepted" or "refused".
func writer(args []string) int {
	err := func() error {
		if len(args) != 3 {
			return fmt.Errorf("got %d arguments", len(args))
		}
		do, err := openResource(args[1], args[2])
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(context.Background(), ample.Time)
		defer cancel()
		b, err := sqlite.Open(ctx, args[0], "zombie", nil)
		if err != nil {
			return err
		}
		lead := func(_ context.Context, l *core.Lease) error {
			fmt.Printf("leads %d\n", l.Token())
			for in := bufio.NewScanner(os.Stdin); in.Scan(); {
				switch err := do(ctx, l.Fence()); {
				case err == nil:
					fmt.Println("accepted")
				case errors.Is(err, driver.ErrFenced):
					fmt.Println("refused")
				default:
					return err
				}
			}
			return nil
		}
		return errors.Join(core.RunSingleton(ctx, b, "ledger", lead, &core.Options{
			TTL: zombieTTL, Logger: slog.New(slog.NewTextHandler(os.Stderr,
				&slog.HandlerOptions{Level: slog.LevelDebug}))}), b.Close())
	}()
	if err != nil {
		fmt.Println("failed:", err)
		return 1
	}
	return 0
}

// resource is the server, which counts accepted writes.
type resource struct {
	where    string
	accepted func() int
}

func openResource(kind, where string) (write, error) {
	kind, _ = strings.CutSuffix(kind, " unfenced") // the server handles this part
	switch kind {
	case "http":
		client := &http.Client{Transport: &fence.Transport{}}
		return func(ctx context.Context, f driver.Fence) error {
			r, err := http.NewRequestWithContext(fence.NewContext(ctx, f), http.MethodPost, where, http.NoBody)
			if err != nil {
				return err
			}
			res, err := client.Do(r)
			if err != nil {
				return err
			}
			err = errors.Join(fence.ResponseError(res), res.Body.Close())
			if err == nil && res.StatusCode != http.StatusOK {
				err = fmt.Errorf("status %s", res.Status)
			}
			return err
		}, nil
	case "grpc":
		conn, err := grpc.NewClient(where, grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithUnaryInterceptor(fencegrpc.UnaryClient()))
		return func(ctx context.Context, f driver.Fence) error {
			return fencegrpc.Error(conn.Invoke(fence.NewContext(ctx, f), "/ledger/Write", &emptypb.Empty{},
				&emptypb.Empty{}))
		}, err
	}
	db, err := sql.Open("sqlite", sqliteDSN(where))
	if err != nil {
		return nil, err
	}
	s, err := fence.NewSQL(db, fence.SQLOptions{Dialect: driver.SQLite})
	if err != nil {
		return nil, err
	}
	const plain = "UPDATE accounts SET writes = writes + 1 WHERE id = 1"
	switch kind {
	case "sql plain":
		return func(ctx context.Context, _ driver.Fence) error {
			_, err := db.ExecContext(ctx, plain)
			return err
		}, nil
	case "sql locked row":
		return func(ctx context.Context, f driver.Fence) error {
			tx, err := db.BeginTx(ctx, nil)
			if err != nil {
				return err
			}
			if err := s.AdmitTx(ctx, tx, "ledger/accounts", f); err != nil {
				return errors.Join(err, tx.Rollback())
			}
			if _, err := tx.ExecContext(ctx, plain); err != nil {
				return errors.Join(err, tx.Rollback())
			}
			return tx.Commit()
		}, nil
	case "sql protected row":
		rows := &fence.Rows{Dialect: driver.SQLite, Table: "accounts", Key: "id", Fence: "fence", Holder: "fenced_by"}
		return func(ctx context.Context, f driver.Fence) error {
			var n int
			if err := db.QueryRowContext(ctx, "SELECT writes FROM accounts WHERE id = 1").Scan(&n); err != nil {
				return err
			}
			return rows.Update(ctx, db, f, 1, map[string]any{"writes": n + 1})
		}, nil
	}
	return nil, fmt.Errorf("no kind of resource %q", kind)
}

func serveResource(t *testing.T, kind string) resource {
	kind, unfenced := strings.CutSuffix(kind, " unfenced")
	mark := fence.NewMark(&fence.Memory{}, nil)
	switch kind {
	case "http":
		n := make(chan int, 1)
		n <- 0
		var h http.Handler = http.HandlerFunc(func(http.ResponseWriter, *http.Request) { n <- <-n + 1 })
		if !unfenced {
			h = mark.Handler(h, nil)
		}
		s := httptest.NewServer(h)
		t.Cleanup(s.Close)
		return resource{s.URL, func() int { v := <-n; n <- v; return v }}
	case "grpc":
		n := make(chan int, 1)
		n <- 0
		var opts []grpc.ServerOption
		if !unfenced {
			opts = append(opts, grpc.UnaryInterceptor(fencegrpc.NewServer(mark, nil).Unary))
		}
		s := grpc.NewServer(opts...)
		s.RegisterService(&grpc.ServiceDesc{ServiceName: "ledger", HandlerType: (*any)(nil),
			Methods: []grpc.MethodDesc{{
				MethodName: "Write",
				Handler: func(_ any, ctx context.Context, dec func(any) error, in grpc.UnaryServerInterceptor) (any, error) {
					req := &emptypb.Empty{}
					if err := dec(req); err != nil {
						return nil, err
					}
					do := func(context.Context, any) (any, error) { n <- <-n + 1; return req, nil }
					if in == nil {
						return do(ctx, req)
					}
					return in(ctx, req, &grpc.UnaryServerInfo{FullMethod: "/ledger/Write"}, do)
				},
			}}}, nil)
		l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		served := make(chan error, 1)
		go func() { served <- s.Serve(l) }()
		t.Cleanup(func() {
			s.Stop()
			if err := <-served; err != nil {
				t.Error(err)
			}
		})
		return resource{l.Addr().String(), func() int { v := <-n; n <- v; return v }}
	}
	path := filepath.Join(t.TempDir(), "app.db")
	db := openDB(t, "sqlite", sqliteDSN(path))
	marks(t, db, fence.SQLOptions{Dialect: driver.SQLite})
	execute(t, db, "CREATE TABLE accounts (id BIGINT PRIMARY KEY, writes BIGINT NOT NULL DEFAULT 0, fence BIGINT NOT "+
		"NULL DEFAULT 0, fenced_by TEXT NOT NULL DEFAULT '')")
	execute(t, db, "INSERT INTO accounts (id) VALUES (1)")
	return resource{path, func() int {
		var n int
		if err := db.QueryRowContext(t.Context(), "SELECT writes FROM accounts WHERE id = 1").Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}}
}

func TestZombie(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		kind   string
		zombie string // the outcome of its write
	}{
		{"http", "refused"},
		{"grpc", "refused"},
		{"sql locked row", "refused"},
		{"sql protected row", "refused"},
		// In these controls, there is no fence, and the damage happens.
		{"http unfenced", "accepted"},
		{"grpc unfenced", "accepted"},
		{"sql plain", "accepted"},
	} {
		t.Run(c.kind, func(t *testing.T) {
			t.Parallel()
			election := filepath.Join(t.TempDir(), "tenure.db")
			r := serveResource(t, c.kind)
			first := startWriter(t, election, c.kind, r.where)
			first.expect("leads ")
			first.write("accepted")
			first.stop(election)
			second := startWriter(t, election, c.kind, r.where)
			second.expect("leads ")
			second.write("accepted")
			first.say() // arrives while the process is stopped, which then continues with this write
			if err := first.cmd.Process.Signal(syscall.SIGCONT); err != nil {
				t.Fatal(err)
			}
			first.expect(c.zombie)
			second.write("accepted")
			want := 3
			if c.zombie == "accepted" {
				want++
			}
			if got := r.accepted(); got != want {
				t.Errorf("the resource accepted %d writes, want %d", got, want)
			}
		})
	}
}

type process struct {
	t     *testing.T
	cmd   *exec.Cmd
	in    io.WriteCloser
	lines chan string
}

func startWriter(t *testing.T, args ...string) *process {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*ample.Time)
	p := &process{t: t, cmd: exec.CommandContext(ctx, exe, append([]string{writerArg}, args...)...),
		lines: make(chan string, 100)}
	var log bytes.Buffer // read when the process has ended
	p.cmd.Stderr = &log
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	read := make(chan struct{})
	go func() {
		defer close(read)
		defer close(p.lines)
		for in := bufio.NewScanner(out); in.Scan(); {
			p.lines <- in.Text()
		}
	}()
	t.Cleanup(func() {
		cancel() // kills the process, even if it is stopped
		<-read
		_ = p.cmd.Wait() // killed
		if t.Failed() {
			t.Logf("a writer's log:\n%s", log.String())
		}
	})
	return p
}

// stop stops the process, but not inside a transaction of the election. A process that is stopped
// in such a transaction keeps SQLite's lock, and no other process can take over until it is
// resumed.
func (p *process) stop(election string) {
	p.t.Helper()
	ample.Wait(p.t, "the process was inside a transaction whenever it was stopped", func() bool {
		if err := p.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
			p.t.Fatal(err)
		}
		// Until all of the process's threads have stopped, one of them may begin a transaction.
		var status syscall.WaitStatus
		if _, err := syscall.Wait4(p.cmd.Process.Pid, &status, syscall.WUNTRACED, nil); err != nil ||
			!status.Stopped() {
			p.t.Fatalf("the process did not stop: status %v, %v", status, err)
		}
		if !isLocked(p.t, election) && !isLocked(p.t, election+"-members") {
			return true
		}
		if err := p.cmd.Process.Signal(syscall.SIGCONT); err != nil {
			p.t.Fatal(err)
		}
		return false
	})
}

func isLocked(t *testing.T, file string) bool {
	t.Helper()
	if _, err := os.Stat(file); err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("sqlite", "file:"+file+"?_pragma=busy_timeout(100)&_txlock=immediate")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		return true
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	return false
}

func (p *process) say() {
	p.t.Helper()
	if _, err := io.WriteString(p.in, "write\n"); err != nil {
		p.t.Fatal(err)
	}
}

func (p *process) write(want string) {
	p.t.Helper()
	p.say()
	p.expect(want)
}

func (p *process) expect(prefix string) {
	p.t.Helper()
	timeout := time.NewTimer(ample.Time)
	defer timeout.Stop()
	select {
	case line, ok := <-p.lines:
		if !ok || !strings.HasPrefix(line, prefix) {
			p.t.Fatalf("a writer says %q, want %q", line, prefix)
		}
	case <-timeout.C:
		p.t.Fatalf("a writer did not say %q in time", prefix)
	}
}

package servers

import (
	"context"
	"database/sql"
	"errors"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/tenure-go/tenure/internal/proof/ample"
)

var pool Pool

func TestMain(m *testing.M) {
	if os.Getenv(childVariable) != "" {
		child()
	}
	os.Exit(pool.Run(m))
}

// databases are the kinds that hold data themselves.
var databases = []Kind{Postgres, MariaDB}

// fresh returns a server for this test alone, never one that the environment names.
func fresh(t *testing.T, kind Kind, o *Options) *Server {
	t.Helper()
	if name := kind.variable(); name != "" && os.Getenv(name) != "" {
		t.Skipf("%s names a running server: this test is about those that are started", name)
	}
	return New(t, kind, o)
}

func open(t *testing.T, d DSN) *sql.DB {
	t.Helper()
	db, err := sql.Open(d.kind.driver(), d.Reveal())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

func bounded(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

func mustExec(t *testing.T, db *sql.DB, statement string) {
	t.Helper()
	if _, err := db.ExecContext(bounded(t, ample.Time), statement); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}

func count(t *testing.T, db *sql.DB, query string) (n int) {
	t.Helper()
	if err := db.QueryRowContext(bounded(t, ample.Time), query).Scan(&n); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return n
}

// eventually waits for a condition without notifications.
func eventually(t *testing.T, what string, check func() bool) {
	t.Helper()
	err := poll(bounded(t, ample.Time), func() (bool, error) { return check(), nil })
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

func TestPoolSharesServerNotDatabases(t *testing.T) {
	t.Parallel()
	for _, kind := range databases {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			s := pool.Get(t, kind, nil)
			if again := pool.Get(t, kind, nil); again != s {
				t.Errorf("got a second server at %s, want that at %s", again.Addr(), s.Addr())
			}
			a, b := open(t, s.Database(t)), open(t, s.Database(t))
			mustExec(t, a, "CREATE TABLE x (n int)")
			mustExec(t, b, "CREATE TABLE x (n int)")
			mustExec(t, a, "INSERT INTO x VALUES (1)")
			if got := count(t, b, "SELECT count(*) FROM x"); got != 0 {
				t.Errorf("got %d rows that another database has, want 0", got)
			}
		})
	}
}

func TestDatabaseIsDropped(t *testing.T) {
	t.Parallel()
	for _, kind := range databases {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			s := pool.Get(t, kind, nil)
			d, err := s.CreateDatabase(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if err := open(t, d).PingContext(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := s.DropDatabase(t.Context(), d); err != nil {
				t.Fatal(err)
			}
			if err := open(t, d).PingContext(t.Context()); err == nil {
				t.Error("the database is still there")
			}
			if err := s.DropDatabase(t.Context(), d.Database("mysql")); err == nil {
				t.Error("dropped a database that was not created here")
			}
		})
	}
}

func TestKillAndRestartKeepData(t *testing.T) {
	t.Parallel()
	for _, kind := range databases {
		for _, nosync := range []bool{false, true} {
			t.Run(string(kind)+map[bool]string{true: "/nosync"}[nosync], func(t *testing.T) {
				t.Parallel()
				s := fresh(t, kind, &Options{NoSync: nosync})
				addr := s.Addr()
				db := open(t, s.Database(t))
				mustExec(t, db, "CREATE TABLE x (n int)")
				mustExec(t, db, "INSERT INTO x VALUES (7)")
				if err := s.Kill(t.Context()); err != nil {
					t.Fatal(err)
				}
				if conn, err := net.Dial("tcp", addr); err == nil {
					conn.Close()
					t.Error("a killed server takes connections")
				}
				if err := s.Cont(); err == nil {
					t.Error("a killed server was continued")
				}
				if err := s.Stop(t.Context()); err == nil {
					t.Error("a killed server was stopped")
				}
				for range 2 { // of a dead server, and of a running one
					if err := s.Restart(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
				if s.Addr() != addr {
					t.Errorf("got address %s after the restart, want %s", s.Addr(), addr)
				}
				eventually(t, "the data", func() bool {
					var n int
					return db.QueryRowContext(t.Context(), "SELECT n FROM x").Scan(&n) == nil && n == 7
				})
			})
		}
	}
}

func TestStopAndCont(t *testing.T) {
	t.Parallel()
	for _, kind := range databases {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			s := fresh(t, kind, nil)
			db := open(t, s.Database(t))
			mustExec(t, db, "CREATE TABLE x (n int)")
			db.SetMaxOpenConns(1)
			conn, err := db.Conn(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if err := s.Stop(t.Context()); err != nil {
				t.Fatal(err)
			}
			answer := make(chan error, 1)
			go func() {
				_, err := conn.ExecContext(t.Context(), "INSERT INTO x VALUES (1)")
				answer <- err
			}()
			select {
			case err := <-answer:
				t.Errorf("got an answer of a stopped server: %v", err)
			case <-time.After(300 * time.Millisecond):
			}
			if err := s.Cont(); err != nil {
				t.Fatal(err)
			}
			select {
			case err := <-answer:
				if err != nil {
					t.Errorf("after the server went on: %v", err)
				}
			case <-bounded(t, ample.Time).Done():
				t.Error("no answer after the server went on")
			}
			// A stopped server can be killed too.
			if err := errors.Join(s.Stop(t.Context()), s.Restart(t.Context())); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestKillProcess(t *testing.T) {
	t.Parallel()
	s := fresh(t, Postgres, nil)
	db := open(t, s.Database(t))
	conn, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	var pid int
	if err := conn.QueryRowContext(t.Context(), "SELECT pg_backend_pid()").Scan(&pid); err != nil {
		t.Fatal(err)
	}
	if err := s.KillProcess(os.Getpid()); err == nil {
		t.Fatal("killed a process that is not the server's")
	}
	if err := s.KillProcess(pid); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.ExecContext(bounded(t, ample.Time), "SELECT 1"); err == nil {
		t.Error("the connection of a killed process still works")
	}
	// The server ends all other connections, so connections that are made before that would end,
	// too.
	eventually(t, "the server ends the others", func() bool { return strings.Contains(s.Logs(), "reinitializing") })
	eventually(t, "the server recovers", func() bool { return db.PingContext(t.Context()) == nil })
}

func TestWrongPassword(t *testing.T) {
	t.Parallel()
	for _, kind := range databases {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			s := fresh(t, kind, nil)
			const wrong = "not-the-password"
			err := open(t, s.User().As(s.User().User(), wrong).Database("postgres")).PingContext(t.Context())
			if err == nil {
				t.Fatal("a wrong password was accepted")
			}
			for _, text := range []string{err.Error(), s.Logs()} {
				for _, secret := range []string{wrong, s.User().Password(), s.Admin().Password()} {
					if strings.Contains(text, secret) {
						t.Errorf("the password stands in: %s", text)
					}
				}
			}
			if s.Logs() == "" {
				t.Error("the server's log is empty")
			}
		})
	}
}

func TestExtraConfig(t *testing.T) {
	t.Parallel()
	Short(t)
	for kind, c := range map[Kind]struct{ line, query string }{
		Postgres: {"max_connections = 57", "SELECT setting::int FROM pg_settings WHERE name = 'max_connections'"},
		MariaDB:  {"max-connections = 57", "SELECT @@max_connections"},
	} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			s := fresh(t, kind, &Options{Config: []string{c.line}, NoSync: true})
			if got := count(t, open(t, s.Database(t)), c.query); got != 57 {
				t.Errorf("got %d connections, want the 57 of the extra line", got)
			}
		})
	}
	t.Run("wrong", func(t *testing.T) {
		t.Parallel()
		if _, err := postgresBinaries(); err != nil || os.Getenv(Postgres.variable()) != "" {
			t.Skip("PostgreSQL cannot be started here")
		}
		_, err := Start(bounded(t, startTimeout), Postgres, &Options{Config: []string{"no_such_setting = 1"}})
		if err == nil || !strings.Contains(err.Error(), "no_such_setting") {
			t.Errorf("got error %v, want the server's reason", err)
		}
	})
}

func TestSmallDiskFills(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("mounting a disk needs root")
	}
	s := fresh(t, Postgres, &Options{DiskBytes: 64 << 20, NoSync: true})
	db := open(t, s.Database(t))
	// Without WAL: a server that finds no room for the WAL stops, with or without an answer.
	mustExec(t, db, "CREATE UNLOGGED TABLE x (t text)")
	_, err := db.ExecContext(bounded(t, ample.Time),
		"INSERT INTO x SELECT repeat(md5(n::text), 60) FROM generate_series(1, 100000) n")
	if err == nil || !strings.Contains(err.Error(), "53100") {
		t.Errorf("got %v from a write of 190 MB to a disk of 64 MB, want SQLSTATE 53100, disk full", err)
	}
}

func TestTLSIsRequired(t *testing.T) {
	t.Parallel()
	for _, level := range []TLS{TLSServer, TLSMutual} {
		name := map[TLS]string{TLSServer: "server", TLSMutual: "mutual"}[level]
		t.Run("postgres/"+name, func(t *testing.T) {
			t.Parallel()
			s := fresh(t, Postgres, &Options{TLS: level, NoSync: true})
			d := s.Database(t)
			if got := count(t, open(t, d), "SELECT count(*) FROM pg_stat_ssl WHERE ssl AND pid = "+
				"pg_backend_pid()"); got != 1 {
				t.Error("the connection has no TLS")
			}
			if err := open(t, d.With("sslmode", "disable")).PingContext(t.Context()); err == nil {
				t.Error("a connection without TLS was accepted")
			}
			if level == TLSMutual {
				bare := postgresDSN(d.Addr(), &certificates{ca: s.CAFile()}).As(d.User(),
					d.Password()).Database(d.Name())
				if err := open(t, bare).PingContext(t.Context()); err == nil {
					t.Error("a client without a certificate was accepted")
				}
			}
		})
		t.Run("mariadb/"+name, func(t *testing.T) {
			t.Parallel()
			s := fresh(t, MariaDB, &Options{TLS: level, NoSync: true})
			d := s.Database(t)
			ping := func(bare bool) error {
				cfg, err := s.TLSConfig()
				if err != nil {
					t.Fatal(err)
				}
				if bare {
					cfg.Certificates = nil
				}
				parsed, err := mysql.ParseDSN(d.Reveal())
				if err != nil {
					t.Fatal(err)
				}
				parsed.TLS = cfg
				connector, err := mysql.NewConnector(parsed)
				if err != nil {
					t.Fatal(err)
				}
				db := sql.OpenDB(connector)
				defer db.Close()
				return db.PingContext(t.Context())
			}
			if err := ping(false); err != nil {
				t.Errorf("with TLS: %v", err)
			}
			if err := open(t, d).PingContext(t.Context()); err == nil {
				t.Error("a connection without TLS was accepted")
			}
			if err := ping(true); (err != nil) != (level == TLSMutual) {
				t.Errorf("without a client's certificate: got error %v at level %s", err, name)
			}
		})
	}
}

func TestPgBouncer(t *testing.T) {
	t.Parallel()
	for name, level := range map[string]TLS{"plain": TLSOff, "tls": TLSServer, "mutual": TLSMutual} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pg := fresh(t, Postgres, &Options{TLS: level, NoSync: true})
			s := fresh(t, PgBouncer, &Options{Upstream: pg, TLS: level, Config: []string{"default_pool_size = 1"}})
			db := open(t, s.Database(t).With("default_query_exec_mode", "simple_protocol"))
			mustExec(t, db, "CREATE TABLE x (n int)")

			// In transaction mode, two clients share the only connection behind the proxy.
			ctx := bounded(t, ample.Time)
			var pids [2]int
			for i := range pids {
				conn, err := db.Conn(ctx)
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close()
				if err := conn.QueryRowContext(ctx, "SELECT pg_backend_pid()").Scan(&pids[i]); err != nil {
					t.Fatal(err)
				}
			}
			if pids[0] != pids[1] {
				t.Errorf("got backends %v for two clients, want one", pids)
			}
			if err := s.Restart(ctx); err != nil {
				t.Fatal(err)
			}
			eventually(t, "connections after a restart", func() bool { return db.PingContext(t.Context()) == nil })
		})
	}
}

func TestServerFromEnvironment(t *testing.T) {
	for _, kind := range databases {
		t.Run(string(kind), func(t *testing.T) {
			backing := pool.Get(t, kind, nil)
			t.Setenv(kind.variable(), backing.Admin().Reveal())
			s := New(t, kind, nil)
			if s.Addr() != backing.Addr() {
				t.Fatalf("got address %s, want that of the variable, %s", s.Addr(), backing.Addr())
			}
			mustExec(t, open(t, s.Database(t)), "CREATE TABLE x (n int)")
			for name, err := range map[string]error{
				"Kill": s.Kill(t.Context()), "Restart": s.Restart(t.Context()), "Stop": s.Stop(t.Context()),
				"Cont": s.Cont(), "KillProcess": s.KillProcess(os.Getpid()), "Reconfigure": s.Reconfigure(t.Context()),
			} {
				if !errors.Is(err, ErrUnsupported) || !strings.Contains(err.Error(), kind.variable()) {
					t.Errorf("%s: got %v, want ErrUnsupported with the variable's name", name, err)
				}
			}
			if _, err := Start(t.Context(), kind, &Options{TLS: TLSServer}); !errors.Is(err, ErrUnavailable) {
				t.Errorf("with options: got %v, want ErrUnavailable", err)
			}
			if kind == Postgres {
				if _, err := Start(t.Context(), PgBouncer, &Options{Upstream: s}); !errors.Is(err, ErrUnavailable) {
					t.Errorf("PgBouncer before it: got %v, want ErrUnavailable", err)
				}
			}
			t.Setenv(kind.variable(), backing.Admin().As("nobody", "planted-secret").Reveal())
			if _, err := Start(t.Context(), kind, nil); err == nil || strings.Contains(err.Error(), "planted-secret") {
				t.Errorf("with a wrong password: got error %v, want one without the password", err)
			}
		})
	}
}

func TestCloseTwiceAndAfter(t *testing.T) {
	t.Parallel()
	s := fresh(t, Postgres, &Options{NoSync: true})
	l := s.inst.(*local)
	if err := errors.Join(s.Close(), s.Close()); err != nil {
		t.Fatal(err)
	}
	if err := s.Restart(t.Context()); err == nil {
		t.Error("a closed server was restarted")
	}
	if _, err := os.Lstat(l.dir.path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("its directory is still there: %v", err)
	}
	if got := s.Logs(); got != "" {
		t.Errorf("got log %q of a closed server", got)
	}
}

// TestPorts: a port belongs to one server, so no server's readiness is read from another server.
func TestPorts(t *testing.T) {
	t.Parallel()
	a, b := new(local), new(local)
	seen := map[int]bool{}
	for i := range 400 {
		l := a
		if i%2 == 1 {
			l = b
		}
		port, err := l.freePort(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if seen[port] {
			t.Fatalf("port %d was given twice", port)
		}
		seen[port] = true
	}
	if err := errors.Join(a.releasePorts(), b.releasePorts()); err != nil {
		t.Error(err)
	}
}

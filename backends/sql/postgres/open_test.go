package postgres

import (
	"context"
	stdsql "database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/goexit"
	"github.com/tenure-go/tenure/internal/proof/servers"
	"github.com/tenure-go/tenure/internal/proof/sqlfault"
)

func TestOpenRefuses(t *testing.T) {
	t.Parallel()
	server := pool.Get(t, servers.Postgres, nil)
	dsn := server.Database(t)
	admin := setup.DB(t, server.Admin().Database(dsn.Name()))
	role := func(name, setting string) servers.DSN {
		sqlfault.Exec(t, admin, fmt.Sprintf("CREATE ROLE %s LOGIN PASSWORD '%s'", name, dsn.Password()), fmt.Sprintf("ALTER ROLE %s SET %s", name, setting))
		t.Cleanup(func() { _, _ = admin.Exec("DROP ROLE " + name) })
		return dsn.As(name, dsn.Password())
	}
	suffix := dsn.Name()[len(dsn.Name())-8:]
	readOnly := role("ro_"+suffix, "default_transaction_read_only = on")
	careless := role("async_"+suffix, "synchronous_commit = off")
	mute := role("mute_"+suffix, "client_min_messages = error")
	newer := server.Database(t)
	if err := Migrate(t.Context(), newer.Reveal(), nil); err != nil {
		t.Fatal(err)
	}
	sqlfault.Exec(t, setup.DB(t, newer), "UPDATE tenure_schema SET version = 99")
	existing := server.Database(t)
	if err := Migrate(t.Context(), existing.Reveal(), nil); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, dsn, namespace string
		options              Options
		is                   error
		says                 string
	}{
		{"no tables", dsn.Reveal(), "app", Options{Create: true}, driver.ErrUnsupported, "run Migrate"},
		{"no identity", existing.Reveal(), "app", Options{}, nil, "Create"},
		{"newer tables", newer.Reveal(), "app", Options{Create: true}, driver.ErrUnsupported, "newer release"},
		{"newer tables to migrate", newer.Reveal(), "app", Options{Migrate: true}, driver.ErrUnsupported, "newer release"},
		{"read-only role", readOnly.Reveal(), "app", Options{}, driver.ErrUnsupported, "read_only"},
		{"asynchronous commits", careless.Reveal(), "app", Options{}, driver.ErrUnsupported, "synchronous_commit"},
		{"no warnings", mute.Reveal(), "app", Options{Pooler: true}, driver.ErrUnsupported, "client_min_messages"},
		{"wrong password", dsn.As(dsn.User(), "wrong").Reveal(), "app", Options{}, nil, "credentials"},
		{"namespace", dsn.Reveal(), "a b", Options{}, driver.ErrInvalid, "namespace"},
		{"schema", dsn.Reveal(), "app", Options{Schema: `x"; DROP`}, driver.ErrInvalid, "schema"},
		{"prefix", dsn.Reveal(), "app", Options{TablePrefix: "Tenure-"}, driver.ErrInvalid, "prefix"},
		{"poll period", dsn.Reveal(), "app", Options{PollPeriod: 1}, driver.ErrInvalid, "poll"},
		{"connections", dsn.Reveal(), "app", Options{MaxConns: -1}, driver.ErrInvalid, "connections"},
		{"DSN", "postgres://u:planted-secret@h:x/d", "app", Options{}, driver.ErrInvalid, "DSN"},
		{"plaintext", "postgres://u:planted-secret@db.example/d?sslmode=disable", "app", Options{}, driver.ErrInvalid, "verify-full"},
		{"plaintext as a fallback", "postgres://u:planted-secret@db.example/d?sslmode=prefer", "app", Options{}, driver.ErrInvalid, "verify-full"},
		{"TLS to anybody", "postgres://u:planted-secret@db.example/d?sslmode=require", "app", Options{}, driver.ErrInvalid, "verify-full"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := Open(t.Context(), c.dsn, c.namespace, &c.options)
			if err == nil || !strings.Contains(err.Error(), c.says) || c.is != nil && !errors.Is(err, c.is) {
				t.Errorf("got %v, want %v that says %q", err, c.is, c.says)
			}
			if text := fmt.Sprintf("%v %+v %#v", err, err, err); strings.Contains(text, "planted-secret") || strings.Contains(text, dsn.Password()) {
				t.Errorf("the error gives a password away: %s", text)
			}
		})
	}
}

// TestLockLimits: the server ends the transactions of a process that is suspended or cut off.
func TestLockLimits(t *testing.T) {
	t.Parallel()
	dsn := pool.Get(t, servers.Postgres, nil).Database(t)
	o, err := (&Options{Migrate: true, NoNotify: true}).withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	stmts, err := compile(o)
	if err != nil {
		t.Fatal(err)
	}
	st, err := openStore(t.Context(), dsn.Reveal(), "app", o, stmts)
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	want := map[string]string{
		"idle_in_transaction_session_timeout": "2s", "tcp_keepalives_idle": "1", "tcp_keepalives_interval": "1",
		"tcp_keepalives_count": "3", "tcp_user_timeout": "4000",
	}
	show := func(setting string) (is string) {
		if err := st.data.QueryRow(t.Context(), "SHOW "+setting).Scan(&is); err != nil {
			t.Fatal(err)
		}
		return is
	}
	if version, err := strconv.Atoi(show("server_version_num")); err != nil || version >= transactionLimitVersion {
		want["transaction_timeout"] = "5s"
	}
	for setting, want := range want {
		if is := show(setting); is != want {
			t.Errorf("%s is %s, want %s", setting, is, want)
		}
	}
}

func TestSchemaAndPrefix(t *testing.T) {
	t.Parallel()
	dsn := pool.Get(t, servers.Postgres, nil).Database(t)
	o := Options{Schema: "coordination", TablePrefix: "t_"}
	s := sqlfault.Join(t, open(t, dsn, o), "n1")
	granted, _ := sqlfault.Acquire(t, s, sqlfault.Claims(1))
	sqlfault.Commit(t, s, sqlfault.AppendOf(granted[0].Fence, 1, []byte("a")))
	var n int
	if err := setup.DB(t, dsn).QueryRowContext(t.Context(), "SELECT count(*) FROM coordination.t_entries").Scan(&n); err != nil || n != 1 {
		t.Errorf("%d entries, %v", n, err)
	}
	other := open(t, dsn, Options{})
	if _, err := other.ReadLog(t.Context(), "shard-00000", 0, 0); err != nil {
		t.Error(err)
	}
	if other.Info().StoreID == "" {
		t.Error("no identity beside another schema's")
	}
}

func TestMigrateAtOnce(t *testing.T) {
	t.Parallel()
	dsn := pool.Get(t, servers.Postgres, nil).Database(t)
	const n = 6
	ids := make(chan string, n)
	for range n {
		go func() {
			b, err := Open(t.Context(), dsn.Reveal(), "app", &Options{Create: true, Migrate: true, NoNotify: true, MaxConns: 1})
			if err != nil {
				t.Error(err)
				ids <- ""
				return
			}
			ids <- b.Info().StoreID
			b.Close()
		}()
	}
	first := <-ids
	for range n - 1 {
		if id := <-ids; id != first {
			t.Errorf("identities %s and %s", id, first)
		}
	}
}

// block returns the SQL that the documentation marks.
func block(t *testing.T, mark string) string {
	t.Helper()
	page := "../../../docs/backends/postgres.md"
	if mark == "possible" {
		page = "../../../docs/internals/backends/postgres.md"
	}
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile("(?s)<!-- " + mark + " -->\n```sql\n(.*?)```").FindSubmatch(text)
	if found == nil {
		t.Fatalf("the documentation has no block %q", mark)
	}
	return string(found[1])
}

// restricted migrates as the owner of the database and returns how the run-time
// role of the recipe reaches it.
func restricted(t *testing.T, server *servers.Server, dsn servers.DSN, o *Options) servers.DSN {
	t.Helper()
	if err := Migrate(t.Context(), dsn.Reveal(), o); err != nil {
		t.Fatal(err)
	}
	app := "app_" + dsn.Name()[len(dsn.Name())-8:]
	admin := setup.DB(t, server.Admin().Database(dsn.Name()))
	sqlfault.Exec(t, admin, strings.NewReplacer("tenure_app", app, "'...'", "'"+dsn.Password()+"'").Replace(block(t, "recipe")))
	t.Cleanup(func() { _, _ = admin.Exec("DROP OWNED BY " + app + "; DROP ROLE " + app) })
	return dsn.As(app, dsn.Password())
}

func TestRunTimeRole(t *testing.T) {
	t.Parallel()
	server := pool.Get(t, servers.Postgres, nil)
	dsn := server.Database(t)
	app := restricted(t, server, dsn, nil)
	b, err := Open(t.Context(), app.Reveal(), "app", &Options{Create: true})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	another, err := Open(t.Context(), app.Reveal(), "another", &Options{Create: true})
	if err != nil {
		t.Fatal(err)
	}
	defer another.Close()
	for _, b := range []*Backend{b, another} {
		s := sqlfault.Join(t, b, "n1")
		sqlfault.Acquire(t, s, sqlfault.Claims(1))
		granted, _ := sqlfault.Acquire(t, s, sqlfault.Claims(2)[1:])
		sqlfault.Commit(t, s, sqlfault.AppendOf(granted[0].Fence, 1, []byte("a")))
		sqlfault.Update(t, s)
		locks, _ := sqlfault.Acquire(t, s, []driver.Claim{{Shard: "_lock.held"}, {Shard: "_lock.head"}, {Shard: "_lock.free"}, {Shard: "free"}})
		sqlfault.Commit(t, s, sqlfault.AppendOf(locks[1].Fence, 1, []byte("a")))
		if err := s.Release(t.Context(), []driver.Fence{locks[1].Fence, locks[2].Fence, locks[3].Fence}); err != nil {
			t.Fatal(err)
		}
	}
	const noRight, falls = "42501", "23000"
	db := setup.DB(t, app)
	sqlfault.Exec(t, db, "UPDATE tenure_namespaces SET base = 100") // as by RaiseFloor
	for text, code := range map[string]string{
		"DELETE FROM tenure_shards":                                                                         falls,
		"DELETE FROM tenure_shards WHERE shard = '_lock.head'":                                              falls,
		"DELETE FROM tenure_shards WHERE shard = '_lock.held'":                                              falls,
		"DELETE FROM tenure_shards WHERE shard = 'free'":                                                    falls,
		"DELETE FROM tenure_namespaces":                                                                     noRight,
		"DELETE FROM tenure_tails":                                                                          noRight,
		"DELETE FROM tenure_rosters":                                                                        noRight,
		"TRUNCATE tenure_shards":                                                                            noRight,
		"TRUNCATE tenure_logs":                                                                              noRight,
		"DROP TABLE tenure_shards":                                                                          noRight,
		"DROP TRIGGER falls ON tenure_shards":                                                               noRight,
		"DROP FUNCTION tenure_refuse()":                                                                     noRight,
		"ALTER TABLE tenure_shards DISABLE TRIGGER ALL":                                                     noRight,
		"ALTER TABLE tenure_shards DROP CONSTRAINT shards_bounds":                                           noRight,
		"SET session_replication_role = replica":                                                            noRight,
		"UPDATE tenure_schema SET version = 0":                                                              noRight,
		"UPDATE tenure_shards SET shard = 'renamed'":                                                        noRight,
		"UPDATE tenure_shards SET namespace = 'renamed'":                                                    noRight,
		"UPDATE tenure_namespaces SET namespace = 'renamed'":                                                noRight,
		"UPDATE tenure_namespaces SET store_id = 'replaced'":                                                noRight,
		"UPDATE tenure_rosters SET namespace = 'renamed'":                                                   noRight,
		"UPDATE tenure_rosters SET store_id = 'replaced'":                                                   noRight,
		"UPDATE tenure_tails SET bucket = bucket + 16":                                                      noRight,
		"UPDATE tenure_logs SET payloads = 'replaced'":                                                      noRight,
		"UPDATE tenure_logs SET token = 1":                                                                  noRight,
		"UPDATE tenure_items SET key = 'renamed'":                                                           noRight,
		"UPDATE tenure_members SET session = 'renamed'":                                                     noRight,
		"UPDATE tenure_departures SET revision = 0":                                                         noRight,
		"UPDATE tenure_shards SET token = token - 1 WHERE token > 1":                                        falls,
		"UPDATE tenure_namespaces SET base = base - 1":                                                      falls,
		"UPDATE tenure_namespaces SET revision = 0":                                                         falls,
		"UPDATE tenure_namespaces SET revision = revision - 1, base = base + 1":                             falls,
		"INSERT INTO tenure_namespaces VALUES ('app') ON CONFLICT (namespace) DO UPDATE SET store_id = 'x'": noRight,
	} {
		var refused *pgconn.PgError
		if _, err := db.ExecContext(t.Context(), text); !errors.As(err, &refused) || refused.Code != code {
			t.Errorf("%s: %v, want a refusal with code %s", text, err, code)
		}
	}
	// The page lists what the role can do, even in other namespaces.
	for text := range strings.SplitSeq(strings.TrimSpace(block(t, "possible")), "\n") {
		possible := sqlfault.Tx(t, db, stdsql.LevelReadCommitted)
		if res, err := possible.ExecContext(t.Context(), text); err != nil {
			t.Errorf("%s: %v; the page says that it is possible", text, err)
		} else if n, err := res.RowsAffected(); err != nil || n == 0 {
			t.Errorf("%s: changed nothing, %v", text, err)
		}
		if err := possible.Rollback(); err != nil {
			t.Fatal(err)
		}
	}
	// If a role may not remove labels or locks, these stay, and nothing else changes.
	sqlfault.Exec(t, setup.DB(t, server.Admin().Database(dsn.Name())), "REVOKE DELETE ON public.tenure_nodes, public.tenure_shards FROM "+app.User())
	sqlfault.Labels(t, b)
	sqlfault.Locks(t, sqlfault.Join(t, b, "locks"), "stay", 5, func() {})
}

func TestTLS(t *testing.T) {
	t.Parallel()
	server := servers.New(t, servers.Postgres, &servers.Options{TLS: servers.TLSServer})
	dsn := server.Database(t)
	file := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(file, []byte(dsn.Password()+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	settings := Settings{DSN: driver.Secret(dsn.As(dsn.User(), "outdated").Reveal()), PasswordFile: file, Namespace: "app", Options: Options{Create: true, Migrate: true}}
	b, err := Opener().Open(t.Context(), func(to any) error { *to.(*Settings) = settings; return nil })
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	sqlfault.Acquire(t, sqlfault.Join(t, b, "n1"), sqlfault.Claims(1))
	printed, err := json.Marshal(settings)
	if text := fmt.Sprintf("%v %+v %#v %s", settings, settings, settings, printed); err != nil || strings.Contains(text, "outdated") {
		t.Errorf("the settings print as %s, %v", text, err)
	}
	for name, bad := range map[string]servers.DSN{
		"plaintext":   dsn.With("sslmode", "disable"),
		"another CA":  dsn.With("sslrootcert", servers.New(t, servers.Postgres, &servers.Options{TLS: servers.TLSServer}).CAFile()),
		"wrong name":  dsn.At("localhost"+dsn.Addr()[strings.LastIndex(dsn.Addr(), ":"):]).With("host", "other.example"),
		"bad secret":  dsn.As(dsn.User(), "wrong"),
		"no password": dsn.As(dsn.User(), ""),
	} {
		if b, err := Open(t.Context(), bad.Reveal(), "app", nil); err == nil {
			b.Close()
			t.Errorf("%s is accepted", name)
		}
	}
	for _, mode := range []string{"verify-ca", "require"} { // with a CA both accept every server that it has signed
		_, err := Open(t.Context(), "postgres://u@db.example/d?sslmode="+mode+"&sslrootcert="+server.CAFile(), "app", nil)
		if !errors.Is(err, driver.ErrInvalid) || !strings.Contains(err.Error(), "verify-full") {
			t.Errorf("sslmode=%s to another host: %v", mode, err)
		}
	}
}

// TestPasswordOfEachConnection: a changed password is read again.
func TestPasswordOfEachConnection(t *testing.T) {
	t.Parallel()
	dsn := pool.Get(t, servers.Postgres, nil).Database(t)
	asked := make(chan struct{}, 100)
	b := open(t, dsn.As(dsn.User(), "outdated"), Options{Password: func(context.Context) (string, error) {
		asked <- struct{}{}
		return dsn.Password(), nil
	}})
	sqlfault.Acquire(t, sqlfault.Join(t, b, "n1"), sqlfault.Claims(1))
	if len(asked) < 3 {
		t.Errorf("asked %d times", len(asked))
	}
}

func TestNames(t *testing.T) {
	t.Parallel()
	dsn := pool.Get(t, servers.Postgres, nil).Database(t)
	sqlfault.CheckNames(t, open(t, dsn, Options{}), setup.DB(t, dsn))
}

func TestChunks(t *testing.T) {
	t.Parallel()
	dsn := pool.Get(t, servers.Postgres, nil).Database(t)
	sqlfault.CheckChunks(t, open(t, dsn, Options{}), setup.DB(t, dsn))
}

// TestOlderTables: a namespace from before incarnations were recorded continues.
func TestOlderTables(t *testing.T) {
	t.Parallel()
	dsn := pool.Get(t, servers.Postgres, nil).Database(t)
	schema, err := files.ReadFile("schema/0001_tables.sql")
	if err != nil {
		t.Fatal(err)
	}
	simple := setup.DB(t, dsn.With("default_query_exec_mode", "simple_protocol"))
	sqlfault.CheckOlderTables(t, simple, string(schema), "tenure_", func() sqlfault.Floored { return open(t, dsn, Options{}) })
}

// TestNoIncarnation: a server that does not report its timeline is refused, unless the options
// accept it.
func TestNoIncarnation(t *testing.T) {
	t.Parallel()
	server := servers.New(t, servers.Postgres, &servers.Options{NoSync: true})
	dsn := server.Database(t)
	sqlfault.Exec(t, setup.DB(t, server.Admin().Database(dsn.Name())), "REVOKE EXECUTE ON FUNCTION pg_control_system() FROM PUBLIC")
	o := &Options{Create: true, Migrate: true}
	if _, err := Open(t.Context(), dsn.Reveal(), "app", o); !errors.Is(err, driver.ErrUnsupported) || !strings.Contains(err.Error(), "NoIncarnation") {
		t.Errorf("opened without the right to ask for the timeline: %v", err)
	}
	sqlfault.Join(t, open(t, dsn, Options{NoIncarnation: true}), "n1")
}

// TestConnectionSettings: a role's own connection settings do not make Open fail.
func TestConnectionSettings(t *testing.T) {
	t.Parallel()
	dsn := pool.Get(t, servers.Postgres, nil).Database(t)
	admin := setup.DB(t, pool.Get(t, servers.Postgres, nil).Admin())
	for _, set := range []string{"client_encoding = 'LATIN1'", "standard_conforming_strings = off"} {
		sqlfault.Exec(t, admin, "ALTER ROLE "+dsn.User()+" IN DATABASE "+dsn.Name()+" SET "+set)
		b, err := Open(t.Context(), dsn.Reveal(), "orders", &Options{Create: true, Migrate: true})
		if err != nil {
			t.Errorf("%s: %v", set, err)
			continue
		}
		b.Close()
	}
}

// TestForgottenPooler: Open names the option that a pooler needs, even if the pooler ignores
// unknown settings.
func TestForgottenPooler(t *testing.T) {
	t.Parallel()
	server := pool.Get(t, servers.Postgres, nil)
	dsn := server.Database(t)
	for _, config := range [][]string{nil, {"ignore_startup_parameters = client_min_messages,tcp_keepalives_idle,tcp_keepalives_interval," +
		"tcp_keepalives_count,tcp_user_timeout,idle_in_transaction_session_timeout,extra_float_digits"}} {
		bouncer := pool.Get(t, servers.PgBouncer, &servers.Options{Upstream: server, Config: config})
		b, err := Open(t.Context(), dsn.At(bouncer.Addr()).Reveal(), "orders", &Options{Create: true, Migrate: true})
		if err == nil {
			b.Close()
		}
		if err == nil || !strings.Contains(err.Error(), "Options.Pooler") {
			t.Errorf("%v: %v", config, err)
		}
	}
}

// TestTooFewConnections: the error names the number of connections that a process needs.
func TestTooFewConnections(t *testing.T) {
	t.Parallel()
	server := pool.Get(t, servers.Postgres, nil)
	dsn := server.Database(t)
	admin := setup.DB(t, server.Admin())
	role := "few_" + dsn.Name()[len(dsn.Name())-8:]
	sqlfault.Exec(t, admin, "CREATE ROLE "+role+" LOGIN CONNECTION LIMIT 0 PASSWORD '"+dsn.Password()+"'")
	t.Cleanup(func() { _, _ = admin.Exec("DROP ROLE " + role) })
	if _, err := Open(t.Context(), dsn.As(role, dsn.Password()).Reveal(), "orders", nil); err == nil ||
		!strings.Contains(err.Error(), "CONNECTION LIMIT") {
		t.Error(err)
	}
}

// TestPasswordGoexit: a function that ends its goroutine fails the connection, and no caller waits
// forever.
func TestPasswordGoexit(t *testing.T) {
	t.Parallel()
	b, err := Open(t.Context(), "postgres://u@127.0.0.1:1/d", "app",
		&Options{Password: func(context.Context) (string, error) { runtime.Goexit(); return "", nil }})
	if !errors.Is(err, goexit.Err) {
		t.Errorf("%v, %v", b, err)
	}
}

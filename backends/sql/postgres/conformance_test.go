package postgres

import (
	"context"
	stdsql "database/sql"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/tenure-go/tenure/backends/sql"
	"github.com/tenure-go/tenure/conformance"
	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/servers"
	"github.com/tenure-go/tenure/internal/sqlfault"
)

// TestConformance runs the suite as the documentation's run-time role.
func TestConformance(t *testing.T) {
	server := pool.Get(t, servers.Postgres, nil)
	dsn := server.Database(t)
	conformance.Test(t, harness(t, dsn, restricted(t, server, dsn, nil), Options{}))
}

func TestConformanceSimpleProtocol(t *testing.T) {
	dsn := pool.Get(t, servers.Postgres, nil).Database(t)
	conformance.Test(t, harness(t, dsn, dsn.With("default_query_exec_mode", "simple_protocol"), Options{NoNotify: true}))
}

func TestConformancePgBouncer(t *testing.T) {
	server := pool.Get(t, servers.Postgres, nil)
	dsn := server.Database(t)
	bouncer := pool.Get(t, servers.PgBouncer, &servers.Options{Upstream: server})
	conformance.Test(t, harness(t, dsn, dsn.At(bouncer.Addr()), Options{Pooler: true}))
}

// TestConformanceRestart runs the cases for which the server is killed and started
// again.
func TestConformanceRestart(t *testing.T) {
	t.Parallel()
	server := servers.New(t, servers.Postgres, nil)
	dsn := server.Database(t)
	h := harness(t, dsn, dsn, Options{})
	create := h.New
	h.New = func(t conformance.T) *conformance.Store {
		s := create(t)
		s.Restart = server.Restart
		return s
	}
	conformance.TestCases(t, h, "Acquire/TokensIncreaseAcrossStoreRestart", "Chaos/RestartStore")
}

// harness runs the suite with backends that use dsn. Its own access to the database
// is direct. Each case has a namespace of its own.
func harness(t *testing.T, direct, dsn servers.DSN, o Options) conformance.Harness {
	if err := Migrate(t.Context(), direct.Reveal(), &o); err != nil {
		t.Fatal(err)
	}
	db, err := stdsql.Open("pgx", direct.Reveal())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	unbound(t, db)
	o.MaxConns = 2
	var version string
	if err := db.QueryRowContext(t.Context(), "SHOW server_version").Scan(&version); err != nil {
		t.Fatal(err)
	}
	version, _, _ = strings.Cut(version, " ") // without what the distribution adds
	var cases atomic.Int64
	return conformance.Harness{
		Name:    Name,
		Version: "PostgreSQL " + version,
		New: func(t conformance.T) *conformance.Store {
			d := &sqlfault.Database{DB: db, Namespace: fmt.Sprintf("suite/case%d", cases.Add(1))}
			calls := new(sqlfault.Calls)
			s := d.Conformance(calls, func(ctx context.Context, namespace string, how sqlfault.How) (driver.Backend, error) {
				return openFaulty(ctx, dsn.Reveal(), namespace, o, calls, how)
			})
			s.Fork = d.Fork
			return s
		},
	}
}

// unbound takes the schema's checks away, as an administrator may, and as in tables of
// before them.
func unbound(t *testing.T, db *stdsql.DB) {
	t.Helper()
	_, err := db.ExecContext(t.Context(), `DO $$ DECLARE c record; BEGIN
  FOR c IN SELECT conrelid::regclass AS on_table, conname FROM pg_constraint WHERE contype = 'c' AND conrelid <> 0
  LOOP EXECUTE format('ALTER TABLE %s DROP CONSTRAINT %I', c.on_table, c.conname); END LOOP; END $$`)
	if err != nil {
		t.Fatal(err)
	}
}

// TestBounds: the schema takes the largest of everything, and nothing beyond.
func TestBounds(t *testing.T) {
	t.Parallel()
	dsn := pool.Get(t, servers.Postgres, nil).Database(t)
	b, db := open(t, dsn, Options{}), setup.DB(t, dsn)
	sqlfault.CheckBounds(t, b, func(string) *stdsql.DB { return db }, wide)
}

// TestWideRows is not parallel: it counts what is allocated.
func TestWideRows(t *testing.T) {
	dsn := pool.Get(t, servers.Postgres, nil).Database(t)
	b, db := open(t, dsn, Options{}), setup.DB(t, dsn)
	unbound(t, db)
	sqlfault.CheckWide(t, b, func(string) *stdsql.DB { return db }, wide)
}

// wide makes strings, and bytes, of the letter x.
var wide = sqlfault.Wide{
	Text:  sqlfault.OfServers().Text,
	Bytes: func(n int) string { return sqlfault.OfServers().Bytes(n) + "::bytea" },
}

func openFaulty(ctx context.Context, dsn, namespace string, o Options, calls *sqlfault.Calls, how sqlfault.How) (driver.Backend, error) {
	o.Create = !how.Existing
	opts, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	stmts, err := compile(opts, func(text string) string {
		if how.Lying {
			return strings.Replace(text, " AND version = :seen::bigint", " AND :seen::bigint > 0", 1)
		}
		return text
	})
	if err != nil {
		return nil, err
	}
	st, err := openStore(ctx, dsn, namespace, opts, stmts)
	if err != nil {
		return nil, err
	}
	b, err := sql.New(ctx, config(namespace, opts, &sqlfault.Store{Store: st, Calls: calls, Wire: how.Wire}, stmts))
	if err != nil {
		return nil, err
	}
	return b, nil
}

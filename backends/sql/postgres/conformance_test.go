package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/tenure-go/tenure/backends/sql/internal/engine"
	"github.com/tenure-go/tenure/backends/sql/internal/enginetest"
	"github.com/tenure-go/tenure/conformance"
	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/proof/servers"
	"github.com/tenure-go/tenure/internal/proof/sqlfault"
)

// TestConformance runs the suite as the documentation's run-time role.
func TestConformance(t *testing.T) {
	server := pool.Get(t, servers.Postgres, nil)
	dsn := server.Database(t)
	user := restricted(t, server, dsn, nil)
	admin := setup.DB(t, server.Admin().Database(dsn.Name()))
	h := harness(t, dsn, user, Options{})
	create := h.New
	h.New = func(t conformance.T) *conformance.Store {
		s := create(t)
		s.Deny = func(ctx context.Context) (func(context.Context) error, error) {
			_, err := admin.ExecContext(ctx, "REVOKE INSERT ON tenure_logs FROM "+user.User())
			return func(ctx context.Context) error {
				_, err := admin.ExecContext(ctx, "GRANT INSERT ON tenure_logs TO "+user.User())
				return err
			}, err
		}
		return s
	}
	conformance.Test(t, h)
}

func TestConformanceSimpleProtocol(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: make check runs it")
	}
	dsn := pool.Get(t, servers.Postgres, nil).Database(t)
	conformance.Test(t, harness(t, dsn, dsn.With("default_query_exec_mode", "simple_protocol"), Options{NoNotify: true}))
}

func TestConformancePgBouncer(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: make check runs it")
	}
	server := pool.Get(t, servers.Postgres, nil)
	dsn := server.Database(t)
	bouncer := pool.Get(t, servers.PgBouncer, &servers.Options{Upstream: server})
	conformance.Test(t, harness(t, dsn, dsn.At(bouncer.Addr()), Options{Pooler: true}))
}

// TestConformanceRestart runs the cases in which the server is killed and restarted.
func TestConformanceRestart(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("-short: make check runs it")
	}
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

// harness runs the suite with backends that use dsn. The harness itself accesses the database
// directly. Each case has a separate namespace.
func harness(t *testing.T, direct, dsn servers.DSN, o Options) conformance.Harness {
	if err := Migrate(t.Context(), direct.Reveal(), &o); err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("pgx", direct.Reveal())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	unbound(t, db)
	sqlfault.Exec(t, db, sqlfault.TextsTable)
	o.MaxConns = 2
	var version string
	if err := db.QueryRowContext(t.Context(), "SHOW server_version").Scan(&version); err != nil {
		t.Fatal(err)
	}
	version, _, _ = strings.Cut(version, " ") // without the distribution's addition
	var cases atomic.Int64
	return conformance.Harness{
		Name:    backendName,
		Version: "PostgreSQL " + version,
		New: func(t conformance.T) *conformance.Store {
			d := &sqlfault.Database{DB: db, Namespace: fmt.Sprintf("suite/case%d", cases.Add(1))}
			calls := new(sqlfault.Calls)
			s := d.Conformance(calls, func(ctx context.Context, namespace string, how sqlfault.How) (driver.Backend, error) {
				return openFaulty(ctx, dsn.Reveal(), namespace, o, calls, how)
			})
			s.Fork = d.Fork
			s.Guards = append(s.Guards, d.Guard("FencePgx", func(ctx context.Context, b driver.Backend) (*sqlfault.GuardedTx, error) {
				return beginPgx(ctx, db, b)
			}))
			return s
		},
	}
}

// unbound removes the schema's checks, as an administrator may. Tables that are older than the
// checks also lack them.
func unbound(t *testing.T, db *sql.DB) {
	t.Helper()
	_, err := db.ExecContext(t.Context(), `DO $$ DECLARE c record; BEGIN
  FOR c IN SELECT conrelid::regclass AS on_table, conname FROM pg_constraint WHERE contype = 'c' AND conrelid <> 0
  LOOP EXECUTE format('ALTER TABLE %s DROP CONSTRAINT %I', c.on_table, c.conname); END LOOP; END $$`)
	if err != nil {
		t.Fatal(err)
	}
}

// TestBounds: the schema accepts the largest values, and refuses larger ones.
func TestBounds(t *testing.T) {
	t.Parallel()
	dsn := pool.Get(t, servers.Postgres, nil).Database(t)
	b, db := open(t, dsn, Options{}), setup.DB(t, dsn)
	sqlfault.CheckBounds(t, b, func(string) *sql.DB { return db }, wide)
}

// TestWideRows is not parallel, because it counts allocations.
func TestWideRows(t *testing.T) {
	dsn := pool.Get(t, servers.Postgres, nil).Database(t)
	b, db := open(t, dsn, Options{}), setup.DB(t, dsn)
	unbound(t, db)
	sqlfault.CheckWide(t, b, func(string) *sql.DB { return db }, wide)
}

// wide makes strings and bytes that repeat the letter x.
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
			return text + sqlfault.LyingProbe("::bigint")
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
	cfg := config(namespace, opts, st, stmts)
	cfg.Store = &enginetest.Store{Store: st, Calls: calls, Wire: how.Wire}
	b, err := engine.New(ctx, cfg)
	if err != nil {
		return nil, err
	}
	return &Backend{Backend: b, pg: st, tables: opts.tables()}, nil
}

// beginPgx begins a pgx transaction on a connection of db. The connection is not used again.
func beginPgx(ctx context.Context, db *sql.DB, b driver.Backend) (*sqlfault.GuardedTx, error) {
	conn, err := db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	var tx pgx.Tx
	err = conn.Raw(func(c any) (err error) {
		tx, err = c.(*stdlib.Conn).Conn().Begin(ctx)
		return err
	})
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	ended := func(end func(context.Context) error) func(context.Context) error {
		return func(ctx context.Context) error { return errors.Join(end(ctx), conn.Close()) }
	}
	context.AfterFunc(ctx, func() { _ = conn.Close() }) // always, and again after a commit
	return &sqlfault.GuardedTx{
		Fence: func(ctx context.Context, fence driver.Fence) error { return b.(*Backend).FencePgx(ctx, tx, fence) },
		Exec: func(ctx context.Context, statement string) error {
			_, err := tx.Exec(ctx, statement)
			return err
		},
		Commit: ended(tx.Commit), Rollback: ended(tx.Rollback),
	}, nil
}

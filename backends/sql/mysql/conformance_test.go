package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/tenure-go/tenure/backends/sql/internal/engine"
	"github.com/tenure-go/tenure/backends/sql/internal/enginetest"
	"github.com/tenure-go/tenure/conformance"
	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/proof/servers"
	"github.com/tenure-go/tenure/internal/proof/sqlfault"
)

// TestConformance runs the suite as the documentation's run-time user.
func TestConformance(t *testing.T) {
	server := pool.Get(t, servers.MariaDB, nil)
	dsn := server.Database(t)
	user := restricted(t, server, dsn)
	admin := setup.DB(t, server.Admin())
	h := harness(t, dsn, user, Options{})
	create := h.New
	h.New = func(t conformance.T) *conformance.Store {
		s := create(t)
		s.Deny = func(ctx context.Context) (func(context.Context) error, error) {
			_, err := admin.ExecContext(ctx, fmt.Sprintf("REVOKE INSERT ON %s.tenure_logs FROM %s", dsn.Name(), user.User()))
			return func(ctx context.Context) error {
				_, err := admin.ExecContext(ctx, fmt.Sprintf("GRANT INSERT ON %s.tenure_logs TO %s", dsn.Name(), user.User()))
				return err
			}, err
		}
		return s
	}
	conformance.Test(t, h)
}

// TestConformanceRestart runs the cases in which the server is killed and restarted.
func TestConformanceRestart(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("-short: make check runs it")
	}
	server := servers.New(t, servers.MariaDB, nil)
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
// through direct. Each case has a separate namespace. The DSNs in others reach the same database in
// other ways.
func harness(t *testing.T, direct, dsn servers.DSN, o Options, others ...servers.DSN) conformance.Harness {
	if err := Migrate(t.Context(), direct.Reveal(), &o); err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("mysql", direct.Reveal())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	unbound(t, db)
	sqlfault.Exec(t, db, sqlfault.TextsTable)
	o.MaxConns = 2
	var version string
	if err := db.QueryRowContext(t.Context(), "SELECT version()").Scan(&version); err != nil {
		t.Fatal(err)
	}
	version, _, _ = strings.Cut(version, " ") // without the distribution's addition
	var doors []*sql.DB
	for _, other := range others {
		doors = append(doors, setup.DB(t, other))
	}
	var cases atomic.Int64
	return conformance.Harness{
		Name:    backendName,
		Version: version,
		New: func(t conformance.T) *conformance.Store {
			d := &sqlfault.Database{DB: db, Namespace: fmt.Sprintf("suite/case%d", cases.Add(1))}
			calls := new(sqlfault.Calls)
			s := d.Conformance(calls, func(ctx context.Context, namespace string, how sqlfault.How) (driver.Backend, error) {
				return openFaulty(ctx, dsn.Reveal(), namespace, o, calls, how)
			})
			s.Fork = d.Fork
			for i, other := range others {
				var begun atomic.Int64
				s.OpenOther = func(ctx context.Context) (driver.Backend, error) {
					return openFaulty(ctx, other.Reveal(), d.Namespace, o, calls, sqlfault.How{Wire: new(sqlfault.Wire)})
				}
				s.Guards = []conformance.Guard{certified(d.FenceTx(func(ctx context.Context) (*sql.Tx, error) {
					if begun.Add(1)%2 == 0 {
						return db.BeginTx(ctx, nil)
					}
					return doors[i].BeginTx(ctx, nil)
				}))}
			}
			return s
		},
	}
}

// certified returns a guard whose transactions may be refused when they commit, with an error that
// allows a retry.
func certified(g conformance.Guard) conformance.Guard {
	begin := g.Begin
	g.Begin = func(ctx context.Context, b driver.Backend, fence driver.Fence) (func(context.Context, string) error, error) {
		write, err := begin(ctx, b, fence)
		if err != nil {
			return nil, err
		}
		return func(ctx context.Context, text string) error {
			err := write(ctx, text)
			if number(err) == errDeadlock {
				err = notApplied(err)
			}
			return err
		}, nil
	}
	return g
}

// unbound removes the schema's checks and widens the columns' types, as an administrator may.
func unbound(t *testing.T, db *sql.DB) {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), `SELECT CONCAT('ALTER TABLE ', table_name, ' DROP CONSTRAINT ', constraint_name)
FROM information_schema.table_constraints WHERE table_schema = database() AND constraint_type = 'CHECK'`)
	if err != nil {
		t.Fatal(err)
	}
	var statements []string
	for rows.Next() {
		var text string
		if err := rows.Scan(&text); err != nil {
			t.Fatal(err)
		}
		statements = append(statements, text)
	}
	if err := errors.Join(rows.Err(), rows.Close()); err != nil || len(statements) < 10 {
		t.Fatalf("%d checks, %v", len(statements), err)
	}
	const ascii, text, bytes = "LONGTEXT CHARACTER SET ascii COLLATE ascii_bin NOT NULL", "LONGTEXT CHARACTER SET utf8mb4 NOT NULL", "LONGBLOB NOT NULL"
	for _, c := range [][3]string{
		{"namespaces", "store_id", ascii}, {"shards", "session", ascii}, {"nodes", "session", ascii}, {"members", "node", ascii},
		{"members", "meta", text}, {"logs", "cuts", ascii}, {"logs", "payloads", bytes}, {"items", "value", bytes},
	} {
		statements = append(statements, fmt.Sprintf("ALTER TABLE tenure_%s MODIFY %s %s", c[0], c[1], c[2]))
	}
	for _, text := range statements {
		if _, err := db.ExecContext(t.Context(), text); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
	}
}

// TestBounds: the schema accepts the largest values, and refuses larger ones.
func TestBounds(t *testing.T) {
	t.Parallel()
	dsn := pool.Get(t, servers.MariaDB, nil).Database(t)
	b, db := open(t, dsn, Options{}), setup.DB(t, dsn)
	sqlfault.CheckBounds(t, b, func(string) *sql.DB { return db }, sqlfault.OfServers())
}

// TestWideRows is not parallel, because it counts allocations.
func TestWideRows(t *testing.T) {
	dsn := pool.Get(t, servers.MariaDB, nil).Database(t)
	b, db := open(t, dsn, Options{}), setup.DB(t, dsn)
	unbound(t, db)
	sqlfault.CheckWide(t, b, func(string) *sql.DB { return db }, sqlfault.OfServers())
}

func openFaulty(ctx context.Context, dsn, namespace string, o Options, calls *sqlfault.Calls, how sqlfault.How) (driver.Backend, error) {
	o.Create = !how.Existing
	opts, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	cfg, err := parse(dsn, opts)
	if err != nil {
		return nil, err
	}
	stmts, err := compile(tables(cfg, opts), func(text string) string {
		if how.Lying {
			return text + sqlfault.LyingProbe("")
		}
		return text
	})
	if err != nil {
		return nil, err
	}
	st, err := openStore(ctx, cfg, opts, stmts)
	if err != nil {
		return nil, err
	}
	b, err := engine.New(ctx, config(namespace, opts, &enginetest.Store{Store: st, Calls: calls, Wire: how.Wire}, stmts))
	if err != nil {
		return nil, err
	}
	return b, nil
}

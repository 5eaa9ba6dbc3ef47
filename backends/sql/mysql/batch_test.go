package mysql

import (
	"database/sql"
	"testing"

	"github.com/tenure-go/tenure/backends/sql/internal/engine"
	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/proof/servers"
	"github.com/tenure-go/tenure/internal/proof/sqlfault"
)

// TestBatchStatements: a batch has as many statements for 4 shards as for 256.
func TestBatchStatements(t *testing.T) {
	t.Parallel()
	o, err := (&Options{Migrate: true, Create: true, MaxConns: 1}).withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := parse(pool.Get(t, servers.MariaDB, nil).Database(t).Reveal(), o)
	if err != nil {
		t.Fatal(err)
	}
	stmts, err := compile(tables(cfg, o))
	if err != nil {
		t.Fatal(err)
	}
	st, err := openStore(t.Context(), cfg, o, stmts)
	if err != nil {
		t.Fatal(err)
	}
	b, err := engine.New(t.Context(), config("app", o, st, stmts))
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	sqlfault.CheckStatements(t, b, func() (n int) {
		l, err := st.data.acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer st.data.release(l)
		err = l.conn.QueryRowContext(t.Context(), "SHOW SESSION STATUS LIKE 'Com_stmt_execute'").Scan(new(string), &n)
		if err != nil {
			t.Fatal(err)
		}
		return n
	})
}

// TestLockedRow: a row that an application's transaction has locked delays no other
// shard.
func TestLockedRow(t *testing.T) {
	t.Parallel()
	dsn := pool.Get(t, servers.MariaDB, nil).Database(t)
	b, db := open(t, dsn, Options{}), setup.DB(t, dsn)
	sqlfault.CheckLocked(t, b, func(f driver.Fence) func() {
		tx := sqlfault.Tx(t, db, sql.LevelReadCommitted)
		if err := b.FenceTx(t.Context(), tx, f); err != nil {
			t.Fatal(err)
		}
		return func() {
			if err := tx.Rollback(); err != nil {
				t.Error(err)
			}
		}
	})
}

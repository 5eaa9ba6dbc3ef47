package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tenure-go/tenure/backends/sql/internal/engine"
	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/proof/servers"
	"github.com/tenure-go/tenure/internal/proof/sqlfault"
)

// counter counts statements except commitsWait, whose number depends on time.
type counter struct{ n atomic.Int64 }

func (c *counter) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return ctx
}
func (c *counter) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}
func (c *counter) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	return ctx
}
func (c *counter) TraceBatchQuery(_ context.Context, _ *pgx.Conn, d pgx.TraceBatchQueryData) {
	if d.SQL != commitsWait {
		c.n.Add(1)
	}
}
func (c *counter) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}

// TestBatchStatements: a batch has as many statements for 4 shards as for 256.
func TestBatchStatements(t *testing.T) {
	t.Parallel()
	o, err := (&Options{Migrate: true, Create: true, MaxConns: 1}).withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	stmts, err := compile(o, func(text string) string { return text })
	if err != nil {
		t.Fatal(err)
	}
	st, err := openStore(t.Context(), pool.Get(t, servers.Postgres, nil).Database(t).Reveal(), "app", o, stmts)
	if err != nil {
		t.Fatal(err)
	}
	var count counter
	cfg := st.data.Config()
	cfg.ConnConfig.Tracer = &count
	st.data.Close()
	if st.data, err = pgxpool.NewWithConfig(t.Context(), cfg); err != nil {
		t.Fatal(errors.Join(err, st.Close()))
	}
	b, err := engine.New(t.Context(), config("app", o, st, stmts))
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	sqlfault.CheckStatements(t, b, func() int { return int(count.n.Load()) })
}

// TestLockedRow: a row that another transaction has locked delays no other shard.
func TestLockedRow(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"UPDATE", "NO KEY UPDATE", "SHARE"} {
		t.Run(how, func(t *testing.T) {
			dsn := pool.Get(t, servers.Postgres, nil).Database(t)
			b, db := open(t, dsn, Options{}), setup.DB(t, dsn)
			sqlfault.CheckLocked(t, b, func(f driver.Fence) func() {
				tx := sqlfault.Tx(t, db, sql.LevelReadCommitted)
				sqlfault.Exec(t, tx, fmt.Sprintf("SELECT FROM tenure_shards WHERE shard = '%s' FOR %s", f.Shard, how))
				return func() {
					if err := tx.Rollback(); err != nil {
						t.Error(err)
					}
				}
			})
		})
	}
}

// TestBatchBesideFence: a transaction that has checked a lease does not delay a batch's write, and
// does not make the batch skip the write.
func TestBatchBesideFence(t *testing.T) {
	t.Parallel()
	dsn := pool.Get(t, servers.Postgres, nil).Database(t)
	b := open(t, dsn, Options{})
	s := sqlfault.Join(t, b, "n1")
	granted, _ := sqlfault.Acquire(t, s, sqlfault.Claims(8))
	fenced := sqlfault.Tx(t, setup.DB(t, dsn), sql.LevelReadCommitted)
	if err := b.FenceTx(t.Context(), fenced, granted[3].Fence); err != nil {
		t.Fatal(err)
	}
	sqlfault.CommitEach(t, s, granted, 1)
}

// TestBatchWithoutACounter: without a counter, no head is written without its entry.
func TestBatchWithoutACounter(t *testing.T) {
	t.Parallel()
	dsn := pool.Get(t, servers.Postgres, nil).Database(t)
	b := open(t, dsn, Options{})
	s := sqlfault.Join(t, b, "n1")
	granted, _ := sqlfault.Acquire(t, s, sqlfault.Claims(2))
	sqlfault.Exec(t, setup.DB(t, dsn), "DELETE FROM tenure_tails")
	res, err := s.Commit(t.Context(), []driver.Write{
		sqlfault.AppendOf(granted[0].Fence, 1, []byte("a")), sqlfault.AppendOf(granted[1].Fence, 1, []byte("b")),
	})
	if !errors.Is(err, driver.ErrRetry) {
		t.Errorf("commit: %+v, %v", res, err)
	}
	page, err := b.ReadLog(t.Context(), granted[0].Fence.Shard, 0, 1)
	if err != nil || page.Head != (driver.Head{}) {
		t.Errorf("the log: %+v, %v", page, err)
	}
}

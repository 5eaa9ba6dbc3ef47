package fence_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	_ "github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/internal/proof/servers"
)

type database struct {
	dialect driver.Dialect
	open    func(t *testing.T) *sql.DB
}

func databases() map[string]database {
	open := func(kind servers.Kind, driver string) func(*testing.T) *sql.DB {
		return func(t *testing.T) *sql.DB {
			return openDB(t, driver, pool.Get(t, kind, nil).Database(t).Reveal())
		}
	}
	return map[string]database{
		"sqlite": {driver.SQLite, func(t *testing.T) *sql.DB {
			return openDB(t, "sqlite", sqliteDSN(filepath.Join(t.TempDir(), "app.db")))
		}},
		"postgres": {driver.Postgres, open(servers.Postgres, "pgx")},
		"mariadb":  {driver.MySQL, open(servers.MariaDB, "mysql")},
	}
}

// sqliteDSN returns the DSN of a database. Its transactions lock the database when they begin, as
// an application's transactions should.
func sqliteDSN(path string) string {
	return "file:" + path + "?_pragma=busy_timeout(10000)&_txlock=immediate"
}

func openDB(t *testing.T, driver, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open(driver, dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return db
}

func execute(t *testing.T, db *sql.DB, text string) {
	t.Helper()
	if _, err := db.ExecContext(t.Context(), text); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
}

func marks(t *testing.T, db *sql.DB, o fence.SQLOptions) *fence.SQL {
	t.Helper()
	s, err := fence.NewSQL(db, o)
	if err != nil {
		t.Fatal(err)
	}
	execute(t, db, s.Schema())
	return s
}

func sqliteMarks(t *testing.T) *fence.SQL {
	return marks(t, databases()["sqlite"].open(t), fence.SQLOptions{Dialect: driver.SQLite})
}

func each(t *testing.T, test func(t *testing.T, dialect driver.Dialect, db *sql.DB)) {
	for name, d := range databases() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, d.dialect, d.open(t))
		})
	}
}

func TestSQLStorage(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, dialect driver.Dialect, db *sql.DB) {
		testAdmit(t, marks(t, db, fence.SQLOptions{Dialect: dialect}))
	})
}

func TestAdmitTx(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, dialect driver.Dialect, db *sql.DB) {
		ctx := t.Context()
		var reported []*fence.RefusedError
		s := marks(t, db, fence.SQLOptions{Dialect: dialect, Table: "fences", OnRefused: func(e *fence.RefusedError) {
			reported = append(reported, e)
		}})
		in := func(f driver.Fence) (*sql.Tx, error) {
			tx, err := db.BeginTx(ctx, nil)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = tx.Rollback() }) // most have ended
			return tx, s.AdmitTx(ctx, tx, "ledger/r", f)
		}
		tx, err := in(lease("a", 5))
		if err != nil {
			t.Fatal(err)
		}
		if err := tx.Rollback(); err != nil {
			t.Fatal(err)
		}
		n := 0
		if err := db.QueryRowContext(ctx, "SELECT COUNT(*) FROM fences").Scan(&n); err != nil || n != 0 {
			t.Fatalf("rolled back, there are %d marks, %v", n, err)
		}
		tx, err = in(lease("a", 5))
		if err != nil {
			t.Fatal(err)
		}
		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
		tx, err = in(lease("b", 4))
		if e, ok := errors.AsType[*fence.RefusedError](err); !ok || e.Current != lease("a", 5) || len(reported) != 1 ||
			reported[0] != e {
			t.Fatalf("got %v, reported %v", err, reported)
		}
		if err := tx.Rollback(); err != nil {
			t.Fatal(err)
		}

		tx, err = in(driver.Fence{Shard: "ledge", Session: "c", Token: 99})
		if e, ok := errors.AsType[*fence.ForeignError](err); !ok || e.Fence.Token != 99 ||
			!errors.Is(err, driver.ErrInvalid) {
			t.Fatalf("another shard's lease: %v", err)
		}
		if err := tx.Rollback(); err != nil {
			t.Fatal(err)
		}

		// The mark stays locked until the transaction ends. A successor waits for the transaction,
		// and then sees its writes.
		tx, err = in(lease("b", 6))
		if err != nil {
			t.Fatal(err)
		}
		var wait sync.WaitGroup
		result := make(chan error, 1)
		wait.Go(func() {
			_, err := s.Raise(ctx, "ledger/r", lease("c", 7))
			result <- err
		})
		select {
		case err := <-result:
			t.Fatalf("a mark was raised beside a transaction that has it: %v", err)
		case <-time.After(100 * time.Millisecond):
		}
		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
		wait.Wait()
		if err := <-result; err != nil {
			t.Fatal(err)
		}
		if _, err = in(lease("b", 6)); !errors.Is(err, driver.ErrFenced) {
			t.Fatalf("the former holder: %v", err)
		}
	})
}

func TestRows(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, dialect driver.Dialect, db *sql.DB) {
		ctx := t.Context()
		execute(t, db, "CREATE TABLE orders (id BIGINT NOT NULL PRIMARY KEY, state VARCHAR(100), fence BIGINT NOT "+
			"NULL DEFAULT 0, fenced_by VARCHAR(255) NOT NULL DEFAULT '')")
		execute(t, db, "INSERT INTO orders (id, state) VALUES (1, 'new'), (2, 'new')")
		refused := 0
		rows := &fence.Rows{Dialect: dialect, Table: "orders", Key: "id", Fence: "fence", Holder: "fenced_by",
			OnRefused: func(*fence.RefusedError) { refused++ }}
		put := func(id int, f driver.Fence, state string) error {
			return rows.Update(ctx, db, f, id, map[string]any{"state": state})
		}
		check := func(id int, want string) {
			t.Helper()
			var got string
			if err := db.QueryRowContext(ctx, dialectText(dialect, "SELECT state FROM orders WHERE id = ?"),
				id).Scan(&got); err != nil || got != want {
				t.Fatalf("row %d is %q, %v, want %q", id, got, err, want)
			}
		}
		for range 2 { // the second update has equal values, which MySQL counts as no change
			if err := put(1, lease("a", 5), "paid'; --"); err != nil {
				t.Fatal(err)
			}
		}
		check(1, "paid'; --")
		for _, f := range []driver.Fence{lease("b", 4), lease("b", 5)} {
			err := put(1, f, "stale")
			if e, ok := errors.AsType[*fence.RefusedError](err); !ok || e.Resource != "orders:1" ||
				e.Current.Token != 5 || e.Current.Session != "a" {
				t.Fatalf("%v: got %v", f, err)
			}
		}
		if refused != 2 {
			t.Errorf("OnRefused was called %d times, want 2", refused)
		}
		check(1, "paid'; --")
		if err := put(2, lease("b", 4), "other row"); err != nil {
			t.Fatal(err)
		}
		if err := put(1, lease("b", 6), "shipped"); err != nil {
			t.Fatal(err)
		}
		check(1, "shipped")
		if err := put(3, lease("b", 6), "none"); !errors.Is(err, fence.ErrNoRow) {
			t.Fatalf("a row that is not there: %v", err)
		}
		if err := rows.Update(ctx, db, lease("b", 7), 1, nil); err != nil { // seals the row
			t.Fatal(err)
		}
		if err := put(1, lease("b", 6), "late"); !errors.Is(err, driver.ErrFenced) {
			t.Fatalf("after a seal: %v", err)
		}
		rows.MayWrite = func(shard driver.ShardID, key any) bool { return shard == "ledger" && key == 1 }
		err := put(2, lease("c", 99), "another shard's")
		if e, ok := errors.AsType[*fence.ForeignError](err); !ok || e.Resource != "orders:2" {
			t.Fatalf("a row that the shard may not write: %v", err)
		}
		check(2, "other row")
		if err := put(1, lease("c", 99), "own"); err != nil {
			t.Fatal(err)
		}
	})
}

// TestRowsInsertedMeanwhile: an update that found no row is never reported as done, even if a row
// is inserted before Update looks for the reason.
func TestRowsInsertedMeanwhile(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, dialect driver.Dialect, db *sql.DB) {
		execute(t, db, "CREATE TABLE orders (id BIGINT NOT NULL PRIMARY KEY, state VARCHAR(100), fence BIGINT NOT "+
			"NULL DEFAULT 0, fenced_by VARCHAR(255) NOT NULL DEFAULT '')")
		rows := &fence.Rows{Dialect: dialect, Table: "orders", Key: "id", Fence: "fence", Holder: "fenced_by"}
		for id, by := range []struct {
			values string // state, fence and fenced_by of the row that was inserted
			want   error
		}{
			{"'first', 7, 'me'", driver.ErrRetry},
			{"'second', 7, 'me'", driver.ErrRetry}, // as the update would have left the row
			{"'first', 6, 'other'", driver.ErrRetry},
			{"'first', 7, 'other'", driver.ErrFenced},
			{"'first', 8, 'me'", driver.ErrFenced},
		} {
			update := func(q fence.Querier) error {
				return rows.Update(t.Context(), q, lease("me", 7), id, map[string]any{"state": "second"})
			}
			err := update(&beforeQuery{db, func() {
				execute(t, db, fmt.Sprintf("INSERT INTO orders (id, state, fence, fenced_by) VALUES (%d, %s)", id, by.values))
			}})
			if !errors.Is(err, by.want) {
				t.Errorf("a row of %s came: got %v, want %v", by.values, err, by.want)
			}
			if err := update(db); (err == nil) != (by.want == driver.ErrRetry) {
				t.Errorf("again, over a row of %s: %v", by.values, err)
			}
		}
	})
}

type beforeQuery struct {
	*sql.DB
	before func()
}

func (q *beforeQuery) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	q.before()
	return q.DB.QueryRowContext(ctx, query, args...)
}

func dialectText(d driver.Dialect, text string) string {
	if d == driver.Postgres {
		return strings.Replace(text, "?", "$1", 1)
	}
	return text
}

// TestSQLNames: no name reaches a statement unchecked.
func TestSQLNames(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{`m"; DROP TABLE x; --`, "a b", "a.b.c", "1a", "a`", "", ".", strings.Repeat("a", 64)} {
		if bad != "" { // the default
			if _, err := fence.NewSQL(nil, fence.SQLOptions{Dialect: driver.SQLite, Table: bad}); !errors.Is(err,
				driver.ErrInvalid) {
				t.Errorf("table %q: %v", bad, err)
			}
		}
		for field := range 4 {
			r := fence.Rows{Dialect: driver.SQLite, Table: "t", Key: "id", Fence: "fence", Holder: "by"}
			*[]*string{&r.Table, &r.Key, &r.Fence, &r.Holder}[field] = bad
			if err := r.Update(t.Context(), noQuery{t}, lease("a", 1), 1, nil); !errors.Is(err, driver.ErrInvalid) {
				t.Errorf("field %d as %q: %v", field, bad, err)
			}
		}
		r := fence.Rows{Dialect: driver.SQLite, Table: "t", Key: "id", Fence: "fence", Holder: "by"}
		if err := r.Update(t.Context(), noQuery{t}, lease("a", 1), 1,
			map[string]any{bad: 1}); !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("column %q: %v", bad, err)
		}
	}
	r := fence.Rows{Dialect: driver.SQLite, Table: "t", Key: "id", Fence: "fence", Holder: "by"}
	if err := r.Update(t.Context(), noQuery{t}, lease("a", 1), 1,
		map[string]any{"fence": 1}); !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("the fence's own column: %v", err)
	}
	if _, err := fence.NewSQL(nil, fence.SQLOptions{Dialect: "oracle"}); !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("dialect: %v", err)
	}
}

type noQuery struct{ t *testing.T }

func (q noQuery) ExecContext(_ context.Context, query string, _ ...any) (sql.Result, error) {
	q.t.Errorf("sent %q", query)
	return nil, errors.ErrUnsupported
}

func (q noQuery) QueryRowContext(_ context.Context, query string, _ ...any) *sql.Row {
	q.t.Errorf("sent %q", query)
	return nil
}

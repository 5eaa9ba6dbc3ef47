package stores_test

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	_ "modernc.org/sqlite"

	"github.com/tenure-go/tenure/backends/memory"
	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/follower"
	"github.com/tenure-go/tenure/internal/proof/servers"
)

func dsn(path string) string {
	return "file:" + path + "?_pragma=busy_timeout(60000)&_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)&_txlock=immediate"
}

func openDB(t testing.TB, path string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", dsn(path))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

const effectsTable = "CREATE TABLE IF NOT EXISTS effects (shard TEXT, seq INTEGER, payload TEXT)"

func insertEffects(ctx context.Context, tx *sql.Tx, b follower.Batch) error {
	for _, e := range b.Entries {
		if _, err := tx.ExecContext(ctx, "INSERT INTO effects VALUES (?, ?, ?)", string(e.Shard), int64(e.Seq),
			string(e.Payload)); err != nil {
			return err
		}
	}
	return nil
}

func newSQL(t testing.TB, db *sql.DB, apply follower.SQLApplyFunc) *follower.SQL {
	t.Helper()
	s, err := follower.NewSQL(db, driver.SQLite, "test", apply,
		&follower.SQLOptions{Restore: func(ctx context.Context, tx *sql.Tx, s *follower.Snapshot) error {
			_, err := tx.ExecContext(ctx, "DELETE FROM effects WHERE shard = ?", s.Shard)
			return err
		}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := db.ExecContext(t.Context(), effectsTable); err != nil {
		t.Fatal(err)
	}
	if err := s.Create(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s
}

// checkEffects expects each entry's effect exactly once.
func checkEffects(t testing.TB, db *sql.DB, shard string, want core.Seq) {
	t.Helper()
	var n, distinct, last int64
	err := db.QueryRowContext(t.Context(), "SELECT COUNT(*), COUNT(DISTINCT seq), MAX(seq) FROM effects WHERE shard = "+
		"? AND payload = CAST(seq AS TEXT)", shard).Scan(&n, &distinct, &last)
	if err != nil || n != int64(want) || distinct != n || last != n {
		t.Errorf("shard %s has %d effects of %d entries up to %d, %v, want %d", shard, n, distinct, last, err, want)
	}
}

// TestSQLTwice: if two processes follow under the same name by mistake, each entry is applied once,
// by one of the processes.
func TestSQLTwice(t *testing.T) {
	t.Parallel()
	store := memory.New()
	path := filepath.Join(t.TempDir(), "app.db")
	db := openDB(t, path)
	var followers []*follow
	b, err := memory.Open(t.Context(), store, "app", nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	o := newOwner(t, b)
	for range 2 {
		applier := newSQL(t, openDB(t, path), insertEffects)
		followers = append(followers, run(t, b,
			&follower.Options{BackoffMin: time.Millisecond, BackoffMax: 5 * time.Millisecond, Batch: 8}, applier))
	}
	for range 20 {
		for _, shard := range []core.ShardID{"a", "b"} {
			o.append(shard, 10)
		}
	}
	for _, f := range followers {
		f.until("a", 200)
		f.until("b", 200)
		f.end()
	}
	checkEffects(t, db, "a", 200)
	checkEffects(t, db, "b", 200)
}

// TestSQLLostReply: a commit that was applied but reported as failed is recognized. If the effect
// fails, nothing is committed.
func TestSQLLostReply(t *testing.T) {
	t.Parallel()
	b, err := memory.Open(t.Context(), memory.New(), "app", nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	o := newOwner(t, b)
	o.append("s", 30)
	db := openDB(t, filepath.Join(t.TempDir(), "app.db"))
	n := 0
	half := newSQL(t, db, func(ctx context.Context, tx *sql.Tx, b follower.Batch) error {
		err := insertEffects(ctx, tx, b)
		if n++; n%2 == 1 {
			err = errors.New("no space")
		}
		return err
	})
	lost := 0
	r := run(t, b, &follower.Options{BackoffMin: time.Millisecond, Batch: 4}, &lossy{SQL: half, lost: &lost})
	r.until("s", 30)
	r.end()
	checkEffects(t, db, "s", 30)
	if lost == 0 {
		t.Error("no reply was lost")
	}
}

// lossy loses the reply of every second commit.
type lossy struct {
	*follower.SQL
	n    int
	lost *int
}

func (l *lossy) Apply(ctx context.Context, b follower.Batch) error {
	err := l.SQL.Apply(ctx, b)
	if l.n++; err == nil && l.n%2 == 0 {
		*l.lost++
		return errors.New("connection reset")
	}
	return err
}

// TestSQLRestore: one step restores a snapshot and moves the position.
func TestSQLRestore(t *testing.T) {
	t.Parallel()
	db := openDB(t, filepath.Join(t.TempDir(), "app.db"))
	s := newSQL(t, db, insertEffects)
	at := func(seq core.Seq) follower.Position { return follower.Position{Shard: "s", Seq: seq, Token: 3} }
	snap := &follower.Snapshot{Position: at(10), Store: "x"}
	if err := s.Restore(t.Context(), follower.Position{Shard: "s"}, snap); err != nil {
		t.Fatal(err)
	}
	if err := s.Restore(t.Context(), follower.Position{Shard: "s"}, snap); !errors.Is(err, follower.ErrMoved) {
		t.Errorf("restoring from where it is not: %v", err)
	}
	snap = &follower.Snapshot{Position: at(20), Store: "x"}
	if err := s.Restore(t.Context(), at(9), snap); !errors.Is(err, follower.ErrMoved) {
		t.Errorf("restoring from where it is not: %v", err)
	}
	if err := s.Restore(t.Context(), at(10), snap); err != nil {
		t.Fatal(err)
	}
	if cp, err := s.Load(t.Context()); err != nil || cp.Store != "x" || len(cp.Positions) != 1 ||
		cp.Positions[0] != at(20) {
		t.Errorf("loaded %+v, %v", cp, err)
	}
	if _, err := db.ExecContext(t.Context(),
		"INSERT INTO tenure_positions VALUES ('test', 'other', 'y', 1, 1)"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Load(t.Context()); !errors.Is(err, core.ErrStoreChanged) {
		t.Errorf("positions of two stores: %v", err)
	}
}

// TestSQLDialects follows into a server's database, with lost replies.
func TestSQLDialects(t *testing.T) {
	if !*all {
		t.Skip("needs servers: make follower-long, or -args -all")
	}
	for _, c := range []struct {
		kind    servers.Kind
		driver  string
		dialect driver.Dialect
		insert  string
	}{
		{servers.Postgres, "pgx", driver.Postgres, "INSERT INTO effects VALUES ($1, $2, $3)"},
		{servers.MariaDB, "mysql", driver.MySQL, "INSERT INTO effects VALUES (?, ?, ?)"},
	} {
		t.Run(string(c.kind), func(t *testing.T) {
			t.Parallel()
			db, err := sql.Open(c.driver, pool.Get(t, c.kind, nil).Database(t).Reveal())
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { db.Close() })
			b, err := memory.Open(t.Context(), memory.New(), "app", nil)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { b.Close() })
			s, err := follower.NewSQL(db, c.dialect, "test",
				func(ctx context.Context, tx *sql.Tx, b follower.Batch) error {
					for _, e := range b.Entries {
						if _, err := tx.ExecContext(ctx, c.insert, string(e.Shard), int64(e.Seq),
							string(e.Payload)); err != nil {
							return err
						}
					}
					return nil
				}, nil)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := db.ExecContext(t.Context(), "CREATE TABLE effects (shard VARCHAR(20), seq BIGINT, payload "+
				"VARCHAR(20))"); err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(s.Create(t.Context()), s.Create(t.Context())); err != nil {
				t.Fatal(err)
			}
			o := newOwner(t, b)
			o.append("a", 100)
			o.append("A", 100) // a different shard, even if the database ignores case
			lost := 0
			f := run(t, b, &follower.Options{BackoffMin: time.Millisecond, Batch: 8, Parallel: 1},
				&lossy{SQL: s, lost: &lost})
			f.until("a", 100)
			f.until("A", 100)
			f.end()
			var n, distinct int
			err = db.QueryRowContext(t.Context(),
				"SELECT COUNT(*), COUNT(DISTINCT payload) FROM effects").Scan(&n, &distinct)
			if err != nil || n != 200 || distinct != 100 || lost == 0 {
				t.Errorf("%d effects of %d entries, %v, with %d replies lost", n, distinct, err, lost)
			}
		})
	}
}

// A function that ends its goroutine in the transaction leaves no transaction open, and no effect.
func TestSQLGoexit(t *testing.T) {
	t.Parallel()
	db := openDB(t, filepath.Join(t.TempDir(), "app.db"))
	db.SetMaxOpenConns(1)
	calls := 0
	s := newSQL(t, db, func(ctx context.Context, tx *sql.Tx, b follower.Batch) error {
		err := insertEffects(ctx, tx, b)
		if calls++; calls == 1 {
			runtime.Goexit()
		}
		return err
	})
	b := follower.Batch{Store: "x", From: follower.Position{Shard: "s"}, Entries: []core.Entry{{Shard: "s", Seq: 1, Token: 1}}}
	if err := s.Apply(t.Context(), b); err == nil {
		t.Error("the first call has no error")
	}
	if err := s.Apply(t.Context(), b); err != nil {
		t.Error(err)
	}
	var n int
	if err := db.QueryRowContext(t.Context(), "SELECT count(*) FROM effects").Scan(&n); err != nil || n != 1 {
		t.Errorf("%d effects, %v", n, err)
	}
}

package sqlite_test

import (
	"bytes"
	"context"
	stdsql "database/sql"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tenure-go/tenure/backends/sql/sqlite"
	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/proof/ample"
)

// untilHalted runs an Elector that serves a shard until it halts, for at most ample.Time. It
// returns Run's result.
func untilHalted(t *testing.T, b driver.Backend, serve core.Handler) error {
	t.Helper()
	e, err := core.NewElector(b, &core.Options{Node: "n", TTL: 5 * time.Second, DrainBudget: time.Second, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Contend(serve, "a"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), ample.Time)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- e.Run(ctx) }()
	for ctx.Err() == nil && e.View().Err == nil {
		time.Sleep(time.Millisecond)
	}
	cancel()
	return <-done
}

// TestLostFiles: a file that is removed or replaced under an Elector halts the Elector. After that,
// no new process starts as if nothing were missing (I1).
func TestLostFiles(t *testing.T) {
	t.Parallel()
	for name, suffix := range map[string]string{
		"data-wal": "-wal", "data-shm": "-shm", "members-wal": "-members-wal", "members-shm": "-members-shm",
	} {
		for _, how := range []string{"", " replaced"} {
			t.Run(name+how, func(t *testing.T) {
				t.Parallel()
				path := dbPath(t)
				b := open(t, path, nil)
				err := untilHalted(t, b, func(ctx context.Context, l *core.Lease) error {
					if _, err := l.Append(ctx, []byte("x")); err != nil {
						t.Error(err)
					}
					if err := os.Remove(path + suffix); err != nil {
						t.Error(err)
					}
					if how != "" {
						if err := os.WriteFile(path+suffix, nil, 0o600); err != nil {
							t.Error(err)
						}
					}
					<-ctx.Done()
					return nil
				})
				// A connection made in between may have found an empty file first.
				if !errors.Is(err, core.ErrStoreChanged) || !strings.Contains(err.Error(), path+suffix) && !strings.Contains(err.Error(), "is damaged") {
					t.Errorf("Run: %v, want ErrStoreChanged that names %s", err, suffix)
				}
				if strings.HasSuffix(suffix, "-wal") {
					refuse(t, path, "app", nil, driver.ErrStoreChanged, "end every process that uses it")
				}
			})
		}
	}
}

// TestLogIsRestored: a process that halted because its log was removed still has the log. When the
// process ends, everything is in the database again.
func TestLogIsRestored(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("-short: processes that lose their log run in .ci/run")
	}
	path := dbPath(t)
	b, err := sqlite.Open(t.Context(), path, "app", nil)
	if err != nil {
		t.Fatal(err)
	}
	s := join(t, b, "n1")
	fence := acquire(t, s, "a", driver.Owner{}).Fence
	commit(t, s, appendOf(fence, 1, "x"))
	if err := os.Remove(path + "-wal"); err != nil {
		t.Fatal(err)
	}
	if err := s.Beat(t.Context()); !errors.Is(err, driver.ErrStoreChanged) {
		t.Errorf("beat: %v", err)
	}
	refuse(t, path, "app", nil, driver.ErrStoreChanged, "-wal was removed while the database was in use")
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	page, err := open(t, path, nil).ReadLog(t.Context(), "a", 0, 10)
	if err != nil || len(page.Entries) != 1 {
		t.Errorf("%+v, %v; want the entry", page, err)
	}
}

// TestLogIsRestoredPastANewConnection: the log is also restored if the last connection to close
// belongs to an SQLite tool, is newer than the removal, and has an empty log.
func TestLogIsRestoredPastANewConnection(t *testing.T) {
	t.Parallel()
	path := dbPath(t)
	b, err := sqlite.Open(t.Context(), path, "app", nil)
	if err != nil {
		t.Fatal(err)
	}
	s := join(t, b, "n1")
	commit(t, s, appendOf(acquire(t, s, "a", driver.Owner{}).Fence, 1, "x"))
	if err := os.Remove(path + "-wal"); err != nil {
		t.Fatal(err)
	}
	tool, err := stdsql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	tool.SetMaxOpenConns(1)
	var version int
	if err := tool.QueryRowContext(t.Context(), "PRAGMA schema_version").Scan(&version); err != nil {
		t.Logf("the new connection: %v", err)
	}
	if _, err := os.Stat(path + "-wal"); err != nil {
		t.Errorf("nothing is shown without another log: %v", err)
	}
	if err := errors.Join(b.Close(), tool.Close()); err != nil {
		t.Error(err)
	}
	page, err := open(t, path, nil).ReadLog(t.Context(), "a", 0, 10)
	if err != nil || len(page.Entries) != 1 {
		t.Errorf("%+v, %v; want the entry", page, err)
	}
}

// TestLogIsNotMadeAnew: a process that lost its log does not create another log with a new
// connection. Processes that still use the lost log would not see the new log (I1).
func TestLogIsNotMadeAnew(t *testing.T) {
	t.Parallel()
	path := dbPath(t)
	b := open(t, path, nil)
	s := join(t, b, "n1")
	commit(t, s, appendOf(acquire(t, s, "a", driver.Owner{}).Fence, 1, "x"))
	if err := os.Remove(path + "-wal"); err != nil {
		t.Fatal(err)
	}
	if tx, err := b.BeginTx(t.Context()); err == nil {
		t.Errorf("a new connection works: %v", tx.Rollback())
	} else if !errors.Is(err, driver.ErrStoreChanged) {
		t.Errorf("a new connection: %v, want ErrStoreChanged", err)
	}
	if _, err := os.Stat(path + "-wal"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the log is there again: %v", err)
	}
}

// TestUserTransactionsAreCounted: the loss of a transaction from BeginTx is noticed, even if Tenure
// committed nothing afterwards. A transaction that was rolled back, or that changed nothing, does
// not count as lost (I1, F1).
func TestUserTransactionsAreCounted(t *testing.T) {
	t.Parallel()
	path := dbPath(t)
	b := open(t, path, nil)
	s := join(t, b, "n1")
	fence := acquire(t, s, "a", driver.Owner{}).Fence
	run(t, path, "CREATE TABLE orders (id INTEGER PRIMARY KEY) STRICT")
	checkpoint := func() { run(t, path, "PRAGMA wal_checkpoint(TRUNCATE)") }
	transact := func(end func(*stdsql.Tx) error, statement string) {
		t.Helper()
		tx, err := b.BeginTx(t.Context())
		if err == nil {
			err = b.FenceTx(t.Context(), tx, fence)
		}
		if err == nil {
			_, err = tx.ExecContext(t.Context(), statement)
		}
		if err == nil {
			err = end(tx)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for i, c := range []struct {
		end       func(*stdsql.Tx) error
		statement string
		lost      bool
	}{
		{(*stdsql.Tx).Commit, "INSERT INTO orders DEFAULT VALUES", true},
		{(*stdsql.Tx).Rollback, "INSERT INTO orders DEFAULT VALUES", false},
		{(*stdsql.Tx).Commit, "INSERT INTO orders DEFAULT VALUES", true},
		{(*stdsql.Tx).Commit, "INSERT INTO orders DEFAULT VALUES", true},
	} {
		checkpoint()
		transact(c.end, c.statement)
		without := copied(t, path, "-wal", "-shm")
		again, err := sqlite.Open(t.Context(), without, "app", nil)
		if err == nil {
			err = again.Close()
		}
		if c.lost && !errors.Is(err, driver.ErrStoreChanged) || !c.lost && err != nil {
			t.Errorf("transaction %d, lost %v: the copy without its log opens with %v", i, c.lost, err)
		}
	}
}

// TestTablePrefixes: two sets of tables in one file count their transactions separately.
func TestTablePrefixes(t *testing.T) {
	t.Parallel()
	path := dbPath(t)
	s := join(t, open(t, path, &sqlite.Options{TablePrefix: "one_"}), "n1")
	fence := acquire(t, s, "a", driver.Owner{}).Fence
	for i := range driver.WriteNo(20) {
		commit(t, s, appendOf(fence, i+1, "x"))
	}
	for range 2 {
		b, err := sqlite.Open(t.Context(), path, "app", &sqlite.Options{TablePrefix: "two_"})
		if err != nil {
			t.Fatal(err)
		}
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestCloseSaysWhatIsLost: if a process cannot write back a lost log because another program reads
// the former state, Close reports this (I1).
func TestCloseSaysWhatIsLost(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("-short: processes that lose their log run in .ci/run")
	}
	path := dbPath(t)
	b, err := sqlite.Open(t.Context(), path, "app", nil)
	if err != nil {
		t.Fatal(err)
	}
	s := join(t, b, "n1")
	fence := acquire(t, s, "a", driver.Owner{}).Fence
	other, err := sqlite.OpenDB(path)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	reader, err := other.BeginTx(t.Context(), &stdsql.TxOptions{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Rollback()
	var n int
	if err := reader.QueryRowContext(t.Context(), "SELECT count(*) FROM tenure_logs").Scan(&n); err != nil {
		t.Fatal(err)
	}
	commit(t, s, appendOf(fence, 1, "x"))
	if err := os.Remove(path + "-wal"); err != nil {
		t.Fatal(err)
	}
	err = b.Close()
	if !errors.Is(err, driver.ErrStoreChanged) || !strings.Contains(err.Error(), path+"-wal was removed while the database was open") ||
		!strings.Contains(err.Error(), " pages could be written back in ") {
		t.Errorf("Close: %v, want ErrStoreChanged that says how much is lost", err)
	}
}

// copied copies the files of a database that no process has open to another folder, except files
// with the given suffixes. It returns the copy's path.
func copied(t *testing.T, path string, without ...string) string {
	t.Helper()
	to := dbPath(t)
	names, err := filepath.Glob(path + "*")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		left := false
		for _, suffix := range without {
			left = left || name == path+suffix
		}
		if left {
			continue
		}
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(to+name[len(path):], text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return to
}

// TestCutLog: a process that finds a log shorter than its index requires does not report a disk
// error.
func TestCutLog(t *testing.T) {
	t.Parallel()
	path := dbPath(t)
	b := open(t, path, nil)
	acquire(t, join(t, b, "n1"), "a", driver.Owner{})
	if err := os.Truncate(path+"-wal", 0); err != nil {
		t.Fatal(err)
	}
	refuse(t, path, "app", nil, driver.ErrStoreChanged, "is damaged: end every process")
}

// TestDamage: an Elector that finds a damaged page in either file halts, on reads and on writes.
func TestDamage(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		suffix, table string
		meet          func(ctx context.Context, l *core.Lease) error
	}{
		"members": {"-members", "tenure_beats", nil},
		"data":    {"", "tenure_shards", nil},
		"log": {"", "tenure_logs", func(ctx context.Context, l *core.Lease) error {
			_, err := l.Commit(ctx, core.Trim(1))
			return err
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := dbPath(t)
			b, err := sqlite.Open(t.Context(), path, "app", nil)
			if err != nil {
				t.Fatal(err)
			}
			s := join(t, b, "n1")
			commit(t, s, appendOf(acquire(t, s, "a", driver.Owner{}).Fence, 1, "x"))
			if err := errors.Join(s.Close(t.Context()), b.Close()); err != nil {
				t.Fatal(err)
			}
			damage(t, path+c.suffix, c.table)
			b, err = sqlite.Open(t.Context(), path, "app", nil)
			if err == nil {
				defer b.Close()
				err = untilHalted(t, b, func(ctx context.Context, l *core.Lease) error {
					if c.meet == nil {
						return errors.New("a lease was granted")
					}
					return c.meet(ctx, l)
				})
			}
			if !errors.Is(err, driver.ErrStoreChanged) || !strings.Contains(err.Error(), "is damaged: end every process") ||
				!strings.Contains(err.Error(), filepath.Base(path)) {
				t.Errorf("got %v, want ErrStoreChanged that says what to do", err)
			}
		})
	}
}

// damage overwrites the first page of a table, in a database that no process has open.
func damage(t *testing.T, path, table string) {
	t.Helper()
	db, err := stdsql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	var page, size int64
	err = db.QueryRowContext(t.Context(), "SELECT rootpage, (SELECT page_size FROM pragma_page_size) FROM sqlite_master WHERE name = ?", table).Scan(&page, &size)
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt(bytes.Repeat([]byte{0xff}, int(size)), (page-1)*size); err != nil {
		t.Error(err)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
}

package sqlite_test

import (
	"context"
	stdsql "database/sql"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tenure-go/tenure/backends/sql/sqlite"
	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/proof/ample"
	"github.com/tenure-go/tenure/internal/proof/sqlfault"
)

func run(t testing.TB, path string, statement string) {
	t.Helper()
	db, err := sqlite.OpenDB(path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.ExecContext(t.Context(), statement); err != nil {
		t.Fatal(err)
	}
}

// refuse checks that opening fails with a one-line error that matches want and contains says.
func refuse(t *testing.T, path, namespace string, o *sqlite.Options, want error, says string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), ample.Time)
	defer cancel()
	b, err := sqlite.Open(ctx, path, namespace, o)
	if err == nil {
		b.Close()
		t.Fatal("opened")
	}
	if want != nil && !errors.Is(err, want) {
		t.Errorf("error %v does not match %v", err, want)
	}
	if !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "\n") {
		t.Errorf("error %q is not one line that says %q", err, says)
	}
}

func TestOpenRefuses(t *testing.T) {
	t.Parallel()
	exists := &sqlite.Options{Create: new(false)}
	t.Run("directory missing", func(t *testing.T) {
		refuse(t, filepath.Join(t.TempDir(), "no", "app.db"), "app", nil, driver.ErrInvalid, "create it")
	})
	t.Run("directory", func(t *testing.T) {
		refuse(t, t.TempDir(), "app", nil, driver.ErrInvalid, "is a directory")
	})
	t.Run("memory", func(t *testing.T) { refuse(t, ":memory:", "app", nil, driver.ErrInvalid, "database file") })
	t.Run("namespace", func(t *testing.T) { refuse(t, dbPath(t), "a b", nil, driver.ErrInvalid, "namespace") })
	t.Run("poll period", func(t *testing.T) {
		refuse(t, dbPath(t), "app", &sqlite.Options{PollPeriod: time.Hour}, driver.ErrInvalid, "poll period")
	})
	t.Run("file missing", func(t *testing.T) {
		path := dbPath(t)
		refuse(t, path, "app", exists, nil, "check the path")
		if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the file was created: %v", err)
		}
	})
	t.Run("identity missing", func(t *testing.T) {
		path := dbPath(t)
		open(t, path, nil)
		refuse(t, path, "other", exists, nil, "no identity")
	})
	t.Run("garbage", func(t *testing.T) {
		path := dbPath(t)
		if err := os.WriteFile(path, []byte(strings.Repeat("garbage ", 1000)), 0o600); err != nil {
			t.Fatal(err)
		}
		refuse(t, path, "app", nil, nil, "not an SQLite database")
		if _, err := os.Stat(path + "-members"); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the members' file was created: %v", err)
		}
	})
	t.Run("newer schema", func(t *testing.T) {
		path := dbPath(t)
		b, err := sqlite.Open(t.Context(), path, "app", nil)
		if err != nil {
			t.Fatal(err)
		}
		b.Close()
		run(t, path, "UPDATE tenure_schema SET version = 99")
		refuse(t, path, "app", nil, driver.ErrUnsupported, "use a newer release")
	})
	t.Run("locked", func(t *testing.T) {
		path := dbPath(t)
		b := open(t, path, nil)
		tx, err := b.BeginTx(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer tx.Rollback()
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		if other, err := sqlite.Open(ctx, path, "app", nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("opening a locked file: %v, %v", other, err)
		}
	})
	t.Run("members removed", func(t *testing.T) {
		path := dbPath(t)
		b, err := sqlite.Open(t.Context(), path, "app", nil)
		if err != nil {
			t.Fatal(err)
		}
		b.Close()
		if err := os.Remove(path + "-members"); err != nil {
			t.Fatal(err)
		}
		refuse(t, path, "app", nil, driver.ErrStoreChanged, "NewRoster")
		open(t, path, &sqlite.Options{NewRoster: true})
	})
	t.Run("data removed", func(t *testing.T) {
		path := dbPath(t)
		b, err := sqlite.Open(t.Context(), path, "app", nil)
		if err != nil {
			t.Fatal(err)
		}
		join(t, b, "n1")
		b.Close()
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		refuse(t, path, "app", nil, driver.ErrStoreChanged, "transactions that it had")
		if err := os.Remove(path + "-tenure_transactions"); err != nil {
			t.Fatal(err)
		}
		refuse(t, path, "app", nil, driver.ErrStoreChanged, "data were removed")
	})
}

// TestFilesArePrivate: no other user can read the files of a database in use.
func TestFilesArePrivate(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	b, err := sqlite.Open(t.Context(), filepath.Join(folder, "tenure.db"), "app", nil)
	if err != nil {
		t.Fatal(err)
	}
	s, err := b.Join(t.Context(), driver.Member{Session: "a", Node: "a", TTL: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	names, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, name := range names {
		got = append(got, name.Name())
		if info, err := name.Info(); err != nil || info.Mode() != 0o600 {
			t.Errorf("%s is %v, %v", name.Name(), info, err)
		}
	}
	want := []string{"tenure.db", "tenure.db-hints", "tenure.db-members", "tenure.db-members-shm", "tenure.db-members-tenure_transactions",
		"tenure.db-members-wal", "tenure.db-shm", "tenure.db-tenure_transactions", "tenure.db-wal"}
	if !slices.Equal(got, want) {
		t.Errorf("files %q, want %q", got, want)
	}
	if err := errors.Join(s.Close(t.Context()), b.Close()); err != nil {
		t.Error(err)
	}
}

func TestManyOpenAtOnce(t *testing.T) {
	t.Parallel()
	path := dbPath(t)
	type opened struct {
		b   *sqlite.Backend
		err error
	}
	const n = 8
	all := make(chan opened, n)
	for i := range n {
		go func() {
			b, err := sqlite.Open(t.Context(), path, "app", nil)
			if err == nil {
				_, err = b.Join(t.Context(), member(fmt.Sprint("n", i)))
			}
			all <- opened{b, err}
		}()
	}
	ids := make(map[string]bool)
	for range n {
		o := <-all
		if o.err != nil {
			t.Error(o.err)
		}
		if o.b != nil {
			ids[o.b.Info().StoreID] = true
			o.b.Close()
		}
	}
	if len(ids) != 1 {
		t.Errorf("%d identities, want 1", len(ids))
	}
}

func TestStoreChanged(t *testing.T) {
	t.Parallel()
	for _, suffix := range []string{"", "-wal", "-shm", "-members", "-members-wal", "-members-shm"} {
		t.Run("removed"+suffix, func(t *testing.T) {
			path := dbPath(t)
			b := open(t, path, nil)
			s := join(t, b, "n1")
			if err := os.Rename(path+suffix, path+".gone"); err != nil {
				t.Fatal(err)
			}
			if err := s.Beat(t.Context()); !errors.Is(err, driver.ErrStoreChanged) {
				t.Errorf("beat: %v", err)
			}
			if _, err := b.Observe(t.Context(), driver.ObserveQuery{}); !errors.Is(err, driver.ErrStoreChanged) {
				t.Errorf("observe: %v", err)
			}
			if err := os.Rename(path+".gone", path+suffix); err != nil {
				t.Fatal(err)
			}
		})
	}
	t.Run("beat stepped back", func(t *testing.T) {
		path := dbPath(t)
		s := join(t, open(t, path, nil), "n1")
		for range 3 {
			if err := s.Beat(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		run(t, path+"-members", "UPDATE tenure_beats SET version = 2")
		if err := s.Beat(t.Context()); !errors.Is(err, driver.ErrStoreChanged) {
			t.Errorf("beat: %v", err)
		}
	})
	t.Run("revision stepped back, floor raised", func(t *testing.T) {
		path := dbPath(t)
		b := open(t, path, nil)
		s := join(t, b, "n1")
		token := acquire(t, s, "a", driver.Owner{}).Fence.Token
		run(t, path, "UPDATE tenure_namespaces SET revision = 0")
		if _, err := s.Acquire(t.Context(), sqlfault.Claims(1)); !errors.Is(err, driver.ErrStoreChanged) {
			t.Errorf("acquire: %v", err)
		}
		if err := b.RaiseFloor(t.Context(), token+1, token+2); !errors.Is(err, driver.ErrConflict) {
			t.Errorf("raising another floor: %v", err)
		}
		floor, err := b.Floor(t.Context())
		if err != nil || floor != 0 {
			t.Errorf("floor %d, %v", floor, err)
		}
		for _, high := range []driver.Token{1<<62 + 1, math.MaxInt64} {
			if err := b.RaiseFloor(t.Context(), floor, high); !errors.Is(err, driver.ErrInvalid) {
				t.Errorf("raising it to %d, which leaves no room: %v", high, err)
			}
		}
		for _, try := range [][2]driver.Token{{floor, 1000}, {floor, 1000}, {floor, 500}, {1000, 1000}, {1000, 7}} {
			if err := b.RaiseFloor(t.Context(), try[0], try[1]); err != nil {
				t.Errorf("raising it from %d to %d, again or to what it is above already: %v", try[0], try[1], err)
			}
		}
		if err := b.RaiseFloor(t.Context(), floor, 1001); !errors.Is(err, driver.ErrConflict) {
			t.Errorf("raising another floor: %v", err)
		}
		if got := acquire(t, s, "b", driver.Owner{}).Fence.Token; got != 1001 {
			t.Errorf("token %d, want 1001", got)
		}
	})
}

func TestFenceTx(t *testing.T) {
	t.Parallel()
	path := dbPath(t)
	b := open(t, path, nil)
	run(t, path, "CREATE TABLE counts (n INTEGER)")
	s := join(t, b, "n1")
	old := acquire(t, s, "a", driver.Owner{}).Fence
	try := func(fence driver.Fence) error {
		tx, err := b.BeginTx(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer tx.Rollback()
		if err := b.FenceTx(t.Context(), tx, fence); err != nil {
			return err
		}
		if _, err := tx.ExecContext(t.Context(), "INSERT INTO counts VALUES (1)"); err != nil {
			t.Fatal(err)
		}
		return tx.Commit()
	}
	if err := try(old); err != nil {
		t.Fatal(err)
	}
	res, err := s.Transfer(t.Context(), []driver.Transfer{{Fence: old, To: s.ID()}})
	if err != nil || res[0].Err != nil {
		t.Fatal(res, err)
	}
	var fenced *driver.FencedError
	if err := try(old); !errors.As(err, &fenced) || fenced.Current.Token != res[0].Fence.Token {
		t.Errorf("dead fence: %v", err)
	}
	if err := try(res[0].Fence); err != nil {
		t.Error(err)
	}
	if err := try(driver.Fence{Shard: "none", Session: "x", Token: 1}); !errors.As(err, &fenced) || fenced.Current != (driver.Owner{}) {
		t.Errorf("shard without a record: %v", err)
	}
}

// A transaction that began with a read cannot become a writer after another connection wrote.
func TestFenceTxInDeferredTransaction(t *testing.T) {
	t.Parallel()
	path := dbPath(t)
	b := open(t, path, nil)
	s := join(t, b, "n1")
	fence := acquire(t, s, "a", driver.Owner{}).Fence
	db, err := stdsql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	if err := tx.QueryRowContext(t.Context(), "SELECT count(*) FROM tenure_shards").Scan(new(int)); err != nil {
		t.Fatal(err)
	}
	commit(t, s, appendOf(fence, 1, "x"))
	if err := b.FenceTx(t.Context(), tx, fence); !errors.Is(err, driver.ErrRetry) {
		t.Errorf("fence in a transaction with an old snapshot: %v, want ErrRetry", err)
	}
}

// A write that waits for the lock ends with its context, and is not applied. Heartbeats do not wait
// for the lock (X1, E4).
func TestWriteBehindALock(t *testing.T) {
	t.Parallel()
	b := open(t, dbPath(t), nil)
	s := join(t, b, "n1")
	fence := acquire(t, s, "a", driver.Owner{}).Fence
	tx, err := b.BeginTx(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	if _, err := s.Commit(ctx, []driver.Write{appendOf(fence, 1, "x")}); !errors.Is(err, driver.ErrRetry) {
		t.Errorf("commit behind a lock: %v, want ErrRetry", err)
	}
	if err := s.Beat(t.Context()); err != nil {
		t.Error(err)
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	commit(t, s, appendOf(fence, 1, "y"))
}

func TestOpener(t *testing.T) {
	t.Parallel()
	path := dbPath(t)
	b, err := sqlite.Opener().Open(t.Context(), func(into any) error {
		s := into.(*sqlite.Settings)
		s.Path, s.Namespace, s.PollPeriod = path, "orders", 20*time.Millisecond
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if i := b.Info(); i.Backend != sqlite.Opener().Name || i.Namespace != "orders" || i.Limits.PollPeriod != 20*time.Millisecond {
		t.Errorf("info %+v", i)
	}
}

// TestSymbolicLink: a path may be a link to a file that another process opens by the file's own
// name, even if that file does not exist yet.
func TestSymbolicLink(t *testing.T) {
	for _, made := range []bool{true, false} {
		dir := t.TempDir()
		if err := os.Mkdir(filepath.Join(dir, "volume"), 0o700); err != nil {
			t.Fatal(err)
		}
		file, link := filepath.Join(dir, "volume", "tenure.db"), filepath.Join(dir, "tenure.db")
		if err := os.Symlink(filepath.Join("volume", "tenure.db"), link); err != nil {
			t.Fatal(err)
		}
		names := []string{link, file}
		if made {
			names = []string{file, link}
		}
		var ids []string
		for _, name := range names {
			b, err := sqlite.Open(t.Context(), name, "orders", nil)
			if err != nil {
				t.Fatalf("%s, made %v: %v", name, made, err)
			}
			defer b.Close()
			ids = append(ids, b.Info().StoreID)
		}
		if ids[0] != ids[1] {
			t.Errorf("made %v: two namespaces: %v", made, ids)
		}
		if left, err := os.ReadDir(dir); err != nil || len(left) != 2 {
			t.Errorf("made %v: files beside the link: %v %v", made, left, err)
		}
	}
}

package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"modernc.org/sqlite"

	"github.com/tenure-go/tenure/backends/sql/internal/engine"
	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/proof/sqlfault"
)

// TestLiveSettings reads the settings of a store's connections and of OpenDB's connections.
func TestLiveSettings(t *testing.T) {
	t.Parallel()
	st, _, _ := newStore(t)
	defer st.Close()
	user, err := OpenDB(st.data.path)
	if err != nil {
		t.Fatal(err)
	}
	defer user.Close()
	for name, on := range map[string]interface {
		QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
	}{
		"data, writes": st.data.committer.conn.conn, "data, reads": st.data.reads, "data, anchor": st.data.anchor,
		"members, writes": st.members.committer.conn.conn, "members, heartbeats": st.members.beats.conn.conn, "members, claims": st.holder.conn, "members, reads": st.members.reads,
		"the application's": user,
	} {
		for setting, want := range map[string]string{"synchronous": "2", "journal_mode": "wal"} {
			var got string
			if setting == "synchronous" && name == "members, heartbeats" {
				want = "1" // because the members end with the machine
			}
			if err := on.QueryRowContext(t.Context(), "PRAGMA "+setting).Scan(&got); err != nil || got != want {
				t.Errorf("%s: %s is %s, %v; want %s", name, setting, got, err, want)
			}
		}
	}
}

// TestSettingsAreAsserted: a connection that uses other settings is refused.
func TestSettingsAreAsserted(t *testing.T) {
	t.Parallel()
	st, _, _ := newStore(t)
	defer st.Close()
	plain := filepath.Join(t.TempDir(), "plain.db")
	if db, err := sql.Open("sqlite", plain); err != nil {
		t.Fatal(err)
	} else if _, err := db.ExecContext(t.Context(), "CREATE TABLE t (n)"); errors.Join(err, db.Close()) != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ path, dsn, says string }{
		{st.data.path, dsn(st.data.path, 0, unflushed), "uses synchronous 1, want 2"},
		{plain, dsn(plain, 0, flushed), "uses journal_mode delete, want wal"},
	} {
		plain, err := connector(c.dsn)
		if err != nil {
			t.Fatal(err)
		}
		db := sql.OpenDB(asserted{plain, c.path, flushed, nil})
		if err := db.PingContext(t.Context()); !errors.Is(err, driver.ErrUnsupported) || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), c.path) {
			t.Errorf("connecting: %v, want ErrUnsupported that says %q", err, c.says)
		}
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestMembersAreLockedUntilCommit: while a claim is committed to the data file, no process can
// write to the members' file (A1, M1).
func TestMembersAreLockedUntilCommit(t *testing.T) {
	t.Parallel()
	st, o, stmts := newStore(t)
	b, err := engine.New(t.Context(), config("app", o, st, stmts))
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	c, err := settled(st.members.path, 0, flushed, nil)
	if err != nil {
		t.Fatal(err)
	}
	other := sql.OpenDB(c)
	defer other.Close()
	conn, err := other.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	s := sqlfault.Join(t, b, "n1")
	commits, locked := 0, false
	err = st.data.committer.conn.conn.Raw(func(c any) error {
		c.(sqlite.HookRegisterer).RegisterCommitHook(func() int32 {
			commits++
			_, err := conn.ExecContext(t.Context(), "BEGIN IMMEDIATE")
			if locked = busy(err); !locked {
				_, err = conn.ExecContext(t.Context(), "ROLLBACK")
				t.Errorf("members can be written while a claim on them is committed: %v", err)
			}
			return 0
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	sqlfault.Acquire(t, s, sqlfault.Claims(1))
	if commits != 1 || !locked {
		t.Errorf("%d commits, locked %v; want one, and locked", commits, locked)
	}
}

// TestClosedIsNotChanged: the last process to close a database removes its log. A pending call must
// not mistake this for a changed store.
func TestClosedIsNotChanged(t *testing.T) {
	t.Parallel()
	st, _, _ := newStore(t)
	if err := st.Check(); err != nil {
		t.Errorf("open: %v", err)
	}
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
	if err := st.data.check(); err == nil {
		t.Error("the log is still there: nothing is shown")
	}
	if err := st.Check(); !errors.Is(err, driver.ErrClosed) || errors.Is(err, driver.ErrStoreChanged) {
		t.Errorf("closed: %v, want ErrClosed", err)
	}
}

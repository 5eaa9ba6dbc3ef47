//go:build unix

package main

import (
	"context"
	"database/sql"
	"os"
	"path/filepath"
	"testing"

	"github.com/tenure-go/tenure/backends/sql/sqlite"
)

// database creates an SQLite database as an earlier run would leave it.
func database(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "board.db")
	b, err := sqlite.Open(t.Context(), path, "earlier", nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

func execute(t *testing.T, db *sql.DB, statement string) {
	t.Helper()
	if _, err := db.ExecContext(t.Context(), statement); err != nil {
		t.Fatal(err)
	}
}

func openDB(t *testing.T, path string) *sql.DB {
	t.Helper()
	db, err := sqlite.OpenDB(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

// TestRefusedDatabase: a database that cannot be used ends the run with one line, exit code 2, and
// no file.
func TestRefusedDatabase(t *testing.T) {
	t.Run("no directory", func(t *testing.T) {
		refuse(t, []string{"-dsn", filepath.Join(t.TempDir(), "none", "board.db")}, "create it")
	})
	t.Run("a directory", func(t *testing.T) {
		refuse(t, []string{"-dsn", t.TempDir()}, "is a directory")
	})
	t.Run("not a database", func(t *testing.T) {
		path := badFlights(t, "not a database at all, but long enough to look like one by its size")
		refuse(t, []string{"-dsn", path}, "is not an SQLite database")
		left, err := os.ReadDir(filepath.Dir(path))
		if err != nil || len(left) != 1 {
			t.Errorf("beside the file: %v, %v", left, err)
		}
	})
	t.Run("of a newer schema", func(t *testing.T) {
		path := database(t)
		execute(t, openDB(t, path), "UPDATE tenure_schema SET version = 9999")
		refuse(t, []string{"-dsn", path}, "use a newer release")
	})
	t.Run("locked", func(t *testing.T) {
		path := database(t)
		db := openDB(t, path)
		tx, err := db.BeginTx(t.Context(), nil) // takes the write lock
		if err != nil {
			t.Fatal(err)
		}
		defer tx.Rollback()
		refuse(t, []string{"-dsn", path}, "another process may hold its write lock")
	})
	t.Run("read-only", func(t *testing.T) {
		if os.Geteuid() == 0 {
			t.Skip("root may write to a read-only file")
		}
		path := database(t)
		for _, f := range []string{path, path + "-members"} {
			if err := os.Chmod(f, 0o400); err != nil {
				t.Fatal(err)
			}
		}
		refuse(t, []string{"-dsn", path}, "cannot be written")
	})
}

// TestNamedDatabase opens a database that others use. The run has a separate namespace in the
// database, and the other data stays.
func TestNamedDatabase(t *testing.T) {
	path := database(t)
	o, err := parseOptions([]string{"-dsn", path, "-namespace", "boards/today"}, stores(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		p, err := openPlace(context.Background(), o)
		if err != nil {
			t.Fatal(err)
		}
		if err := p.close(true); err != nil {
			t.Fatal(err)
		}
	}
	var n int
	row := openDB(t, path).QueryRowContext(t.Context(),
		"SELECT count(*) FROM tenure_namespaces WHERE namespace = 'earlier' OR namespace LIKE 'boards/today/run-%'")
	if err := row.Scan(&n); err != nil || n != 3 {
		t.Errorf("%d namespaces, %v, want 3", n, err)
	}
}

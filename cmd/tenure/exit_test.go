//go:build linux

package main

import (
	"database/sql"
	"fmt"
	"os"
	"testing"

	"github.com/tenure-go/tenure/backends/sql/sqlite"
	"github.com/tenure-go/tenure/core"
)

// TestOwnDisk: a full disk of this host is not reported as a store that did not answer.
func TestOwnDisk(t *testing.T) {
	t.Parallel()
	p, path := database(t)
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	for _, args := range [][]string{{"members"}, {"members", "-o", "json"}, {"rules", "-o", "yaml"}, {"export"}} {
		cmd := p.command(t.Context(), args...)
		cmd.Stdout = full
		if err := cmd.Run(); cmd.ProcessState.ExitCode() != exitOther {
			t.Errorf("tenure %v with a full disk: %v", args, err)
		}
	}

	db, err := sqlite.OpenDB(path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	db.SetMaxOpenConns(1)
	if err := fill(db); codeOf(t.Context(), fmt.Errorf("tenure: %w: %w", core.ErrRetry, err)) != exitOther {
		t.Errorf("got %v, want an error of a full disk", err)
	}
}

// fill writes more than the database may hold.
func fill(db *sql.DB) error {
	for _, text := range []string{"PRAGMA max_page_count = 4", "CREATE TABLE t (x BLOB)", "INSERT INTO t VALUES (zeroblob(1000000))"} {
		if _, err := db.Exec(text); err != nil {
			return err
		}
	}
	return nil
}

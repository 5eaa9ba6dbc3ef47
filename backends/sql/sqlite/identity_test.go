package sqlite

import (
	stdsql "database/sql"
	"path/filepath"
	"testing"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/proof/outage"
	"github.com/tenure-go/tenure/internal/proof/sqlfault"
)

// TestIdentityTampered: overwriting or removing the identity stops the members.
func TestIdentityTampered(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "app.db")
	open := func(t *testing.T, namespace string) driver.Backend {
		b, err := Open(t.Context(), path, namespace, nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { b.Close() })
		return b
	}
	open(t, "first") // makes the tables
	var files []*stdsql.DB
	for _, suffix := range []string{"", membersSuffix} {
		db, err := OpenDB(path + suffix)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { db.Close() })
		files = append(files, db)
	}
	outage.Identity(t, open, sqlfault.TamperIdentity(files[0], files[1]))
}

package doctest

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	_ "modernc.org/sqlite"

	"github.com/tenure-go/tenure/backends/sql/mysql"
	"github.com/tenure-go/tenure/backends/sql/postgres"
	"github.com/tenure-go/tenure/backends/sql/sqlite"
	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/internal/proof/servers"
)

// TestSQL runs the SQL of the pages while a member owns the shard that the SQL names. Each
// statement must find rows. The backends' tests run the recipes, and the statements that their
// permissions allow.
func TestSQL(t *testing.T) {
	t.Parallel()
	n := 0
	for _, page := range pages(t) {
		var look []*block
		for _, b := range blocks(t, page) {
			if b.lang == "sql" && b.mark != "recipe" && b.mark != "possible" {
				look = append(look, b)
			}
		}
		if len(look) == 0 {
			continue
		}
		n++
		t.Run(strings.TrimSuffix(page, ".md"), func(t *testing.T) {
			t.Parallel()
			b, dbs := openedStore(t, page)
			err := core.RunSingleton(t.Context(), b, "hello", func(ctx context.Context, lease *core.Lease) error {
				if _, err := lease.Append(ctx, []byte("hello")); err != nil {
					return err
				}
				for _, l := range look {
					for statement := range strings.SplitSeq(strings.TrimSpace(l.text), ";\n") {
						found(ctx, t, dbs, l, statement)
					}
				}
				return nil
			}, nil)
			if err != nil {
				t.Error(err)
			}
		})
	}
	if n != 3 {
		t.Errorf("%d pages with SQL, want 3", n)
	}
}

// found fails the test if the statement finds no row in any of the databases.
func found(ctx context.Context, t *testing.T, dbs []*sql.DB, b *block, statement string) {
	t.Helper()
	var all []error
	for _, db := range dbs {
		rows, err := db.QueryContext(ctx, strings.TrimSuffix(statement, ";"))
		if err != nil {
			all = append(all, err)
			continue
		}
		some := rows.Next()
		if err := errors.Join(rows.Err(), rows.Close()); err != nil {
			all = append(all, err)
		}
		if some {
			return
		}
	}
	t.Errorf("%s: found nothing by\n%s\n%v", b, statement, errors.Join(all...))
}

// openedStore returns namespace "orders" of the page's store, and the databases with its tables.
func openedStore(t *testing.T, page string) (core.Backend, []*sql.DB) {
	t.Helper()
	var b core.Backend
	var err error
	source := map[string]string{}
	switch page {
	case "docs/backends/sqlite.md":
		path := filepath.Join(t.TempDir(), "tenure.db")
		b, err = sqlite.Open(t.Context(), path, "orders", nil)
		source[path], source[path+"-members"] = "sqlite", "sqlite"
	case "docs/backends/postgres.md":
		dsn := servers.New(t, servers.Postgres, &servers.Options{NoSync: true}).Database(t).Reveal()
		b, err = postgres.Open(t.Context(), dsn, "orders", &postgres.Options{Create: true, Migrate: true})
		source[dsn] = "pgx"
	case "docs/backends/mysql.md":
		dsn := servers.New(t, servers.MariaDB, &servers.Options{NoSync: true}).Database(t).Reveal()
		b, err = mysql.Open(t.Context(), dsn, "orders", &mysql.Options{Create: true, Migrate: true})
		source[dsn] = "mysql"
	default:
		t.Fatalf("%s has SQL that nothing runs", page)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	var dbs []*sql.DB
	for dsn, driver := range source {
		db, err := sql.Open(driver, dsn)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = db.Close() })
		dbs = append(dbs, db)
	}
	return b, dbs
}

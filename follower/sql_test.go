package follower

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"strings"
	"testing"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/core/driver"
)

type noDatabase struct{}

func (noDatabase) Connect(context.Context) (sqldriver.Conn, error) {
	return nil, errors.New("no database")
}

func (noDatabase) Driver() sqldriver.Driver { return nil }

// TestSQLText checks the names and placeholders of each dialect, and refused names.
func TestSQLText(t *testing.T) {
	t.Parallel()
	db := sql.OpenDB(noDatabase{})
	t.Cleanup(func() { db.Close() })
	apply := func(context.Context, *sql.Tx, Batch) error { return nil }
	s, err := NewSQL(db, driver.Postgres, "f", apply, &SQLOptions{Table: "app.order"})
	if err != nil {
		t.Fatal(err)
	}
	if want := `UPDATE "app"."order" SET seq = $1, token = $2 WHERE follower = $3 AND shard = $4 AND store = $5 AND seq = $6 AND token = $7`; s.update != want {
		t.Errorf("got %s", s.update)
	}
	if s, err = NewSQL(db, driver.MySQL, "f", apply, nil); err != nil || !strings.Contains(s.Schema(), "ascii_bin") ||
		!strings.Contains(s.Schema(), "`tenure_positions`") {
		t.Errorf("%v, %v", s.Schema(), err)
	}
	for _, bad := range []func() (*SQL, error){
		func() (*SQL, error) { return NewSQL(db, "oracle", "f", apply, nil) },
		func() (*SQL, error) { return NewSQL(nil, driver.SQLite, "f", apply, nil) },
		func() (*SQL, error) { return NewSQL(db, driver.SQLite, "f'", apply, nil) },
		func() (*SQL, error) { return NewSQL(db, driver.SQLite, "f", apply, &SQLOptions{Table: "a; DROP"}) },
		func() (*SQL, error) { return NewSQL(db, driver.SQLite, "f", apply, &SQLOptions{Table: "a.b.c"}) },
	} {
		if _, err := bad(); !errors.Is(err, core.ErrInvalid) {
			t.Errorf("got %v", err)
		}
	}
	if _, err := s.Load(t.Context()); err == nil || !strings.Contains(err.Error(), "Create") {
		t.Errorf("without the table: %v", err)
	}
	if err := s.Apply(t.Context(), Batch{From: Position{Shard: "s"},
		Entries: []core.Entry{{Seq: 1, Token: 1}}}); err == nil {
		t.Error("applied without a database")
	}
}

package sqlfault

import (
	"context"
	stdsql "database/sql"
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/sqlschema"
)

// Floored is a backend that can report its floor.
type Floored interface {
	driver.Backend
	Floor(ctx context.Context) (driver.Token, error)
}

// CheckOlderTables opens the namespace "app" in tables of the first version. The namespace comes
// from a release that recorded no incarnation. Opening migrates the tables, and the namespace must
// continue with its tokens.
func CheckOlderTables(t *testing.T, db *stdsql.DB, schema, prefix string, open func() Floored) {
	t.Helper()
	statements := []string{
		sqlschema.WithPrefix(schema, prefix),
		"UPDATE tenure_schema SET version = 1",
		"INSERT INTO tenure_namespaces (namespace, store_id, base, revision) VALUES ('app', 'old', 1000, 7)",
		"INSERT INTO tenure_rosters (namespace, store_id, revision) VALUES ('app', 'old', 3)",
		"INSERT INTO tenure_members (namespace, session, node, ttl_ns, priority, weight, meta, supersede, revision) " +
			"VALUES ('app', 'S', 'n0', 1000000000, -1, 7, '{\"a\":\"b\"}', false, 3)",
		"INSERT INTO tenure_beats (namespace, session) VALUES ('app', 'S')",
	}
	for bucket := range 16 {
		statements = append(statements, fmt.Sprintf("INSERT INTO tenure_tails (namespace, bucket) VALUES ('app', %d)",
			bucket))
	}
	for _, s := range statements {
		if _, err := db.ExecContext(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	b := open()
	if floor, err := b.Floor(t.Context()); err != nil || floor != 1007 {
		t.Errorf("the floor is %d, %v after the tables were migrated, want 1007", floor, err)
	}
	view, err := b.Observe(t.Context(), driver.ObserveQuery{})
	want := []driver.Member{{Session: "S", Node: "n0", TTL: time.Second,
		MemberState: driver.MemberState{Priority: -1, Weight: 7, Meta: map[string]string{"a": "b"}}}}
	if err != nil || !reflect.DeepEqual(view.Members, want) {
		t.Errorf("after the tables were migrated the view is %+v, %v; want the members %+v", view, err, want)
	}
	if granted, _ := Acquire(t, Join(t, b, "n1"), Claims(1)); granted[0].Fence.Token != 1008 {
		t.Errorf("token %d, want 1008", granted[0].Fence.Token)
	}
	var incarnation string
	if err := db.QueryRowContext(t.Context(),
		"SELECT incarnation FROM tenure_namespaces WHERE namespace = 'app'").Scan(&incarnation); err != nil ||
		incarnation == "" {
		t.Errorf("the incarnation on record is %q, %v", incarnation, err)
	}
}

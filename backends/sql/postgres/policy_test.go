package postgres

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/proof/servers"
	"github.com/tenure-go/tenure/internal/proof/sqlfault"
)

// TestRowSecurity: a policy that hides rows from the run-time role makes Open fail. It also makes
// reads fail, even through a pooler.
func TestRowSecurity(t *testing.T) {
	t.Parallel()
	server := servers.New(t, servers.Postgres, &servers.Options{NoSync: true})
	bouncer := pool.Get(t, servers.PgBouncer, &servers.Options{Upstream: server})
	for name, o := range map[string]Options{"direct": {}, "pooler": {Pooler: true}} {
		t.Run(name, func(t *testing.T) {
			dsn := server.Database(t)
			app := restricted(t, server, dsn, nil)
			if o.Pooler { // the pooler knows only the owner
				app = dsn.At(bouncer.Addr())
			}
			o.Create = true
			b, err := Open(t.Context(), app.Reveal(), "app", &o)
			if err != nil {
				t.Fatal(err)
			}
			defer b.Close()
			s, err := b.Join(t.Context(), driver.Member{Session: "0123456789abcdef0123456789abcdef", Node: "n", TTL: time.Minute})
			if err != nil {
				t.Fatal(err)
			}
			got, err := s.Acquire(t.Context(), []driver.Claim{{Shard: "a"}})
			if err != nil || got[0].Err != nil {
				t.Fatal(err, got)
			}
			written, err := s.Commit(t.Context(), []driver.Write{{Fence: got[0].Fence, Number: 1, Nonce: 1, Ops: []driver.Op{
				{Kind: driver.OpAppend, Value: []byte("x")}, {Kind: driver.OpPut, Key: "k", Value: []byte("v"), IfVersion: driver.AnyVersion},
			}}})
			if err != nil || written[0].Err != nil {
				t.Fatal(err, written)
			}
			owner := setup.DB(t, dsn)
			sqlfault.Exec(t, owner, "ALTER TABLE tenure_logs ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY; "+
				"ALTER TABLE tenure_items ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY")
			const hides = "row-level security"
			if page, err := b.ReadLog(t.Context(), "a", 0, 10); err == nil || !strings.Contains(err.Error(), hides) {
				t.Errorf("the log reads as %+v, %v", page, err)
			}
			if item, err := b.Get(t.Context(), "a", "k"); err == nil || !strings.Contains(err.Error(), hides) {
				t.Errorf("the item reads as %+v, %v", item, err)
			}
			if items, err := b.List(t.Context(), "a", "", 10, 0); err == nil || !strings.Contains(err.Error(), hides) {
				t.Errorf("the items read as %+v, %v", items, err)
			}
			found, err := b.Examine(t.Context())
			if f := named(found, "row level security"); err != nil || f.Value != "items, logs" && f.Value != "logs, items" || f.Remedy == "" {
				t.Errorf("Examine finds %+v, %v", f, err)
			}
			if _, err := Open(t.Context(), app.Reveal(), "app", &o); !errors.Is(err, driver.ErrUnsupported) ||
				!strings.Contains(err.Error(), "logs") {
				t.Errorf("Open answers %v", err)
			}
		})
	}
}

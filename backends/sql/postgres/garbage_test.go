package postgres

import (
	"context"
	"testing"

	"github.com/tenure-go/tenure/conformance"
	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/proof/garbage"
	"github.com/tenure-go/tenure/internal/proof/servers"
	"github.com/tenure-go/tenure/internal/proof/sqlfault"
)

var garbageFor = garbage.Flag()

// TestGarbage is not parallel, because it measures the heap. It writes garbage as the run-time
// role, under the checks of the schema.
func TestGarbage(t *testing.T) {
	server := pool.Get(t, servers.Postgres, nil)
	dsn := server.Database(t)
	app := restricted(t, server, dsn, nil)
	d := &sqlfault.Database{DB: setup.DB(t, app), Namespace: "garbage"}
	calls := new(sqlfault.Calls)
	store := d.Conformance(calls, func(ctx context.Context, namespace string, how sqlfault.How) (driver.Backend, error) {
		return openFaulty(ctx, app.Reveal(), namespace, Options{}, calls, how)
	})
	conformance.TestGarbage(t, func(conformance.T) *conformance.Store { return store }, *garbageFor)
}

package postgres

import (
	"context"
	stdsql "database/sql"
	"testing"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/proof/servers"
	"github.com/tenure-go/tenure/internal/proof/sqlfault"
)

var slowDiskFlag = sqlfault.SlowDiskFlag()

// TestSlowDisk: a heartbeat that overlaps another heartbeat of its session does not wait for the
// other's flush. It takes two flushes, like any commit that begins during another commit's flush.
func TestSlowDisk(t *testing.T) { setup.SlowDisk(t, slowDiskFlag) }

func TestBeats(t *testing.T) {
	setup.Beats(t, func(ctx context.Context, dsn string, wire *sqlfault.Wire) (driver.Backend, error) {
		return openFaulty(ctx, dsn, "app", Options{}, new(sqlfault.Calls), sqlfault.How{Wire: wire})
	}, func(_ servers.DSN, db *stdsql.DB) { awaitWaiting(t, db, 1) })
}

package mysql

import (
	"context"
	stdsql "database/sql"
	"strings"
	"testing"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/proof/servers"
	"github.com/tenure-go/tenure/internal/proof/sqlfault"
)

var slowDiskFlag = sqlfault.SlowDiskFlag()

// TestSlowDisk measures the cost of a heartbeat on a slow disk. InnoDB shows a commit and frees the
// commit's locks before the flush, so no heartbeat waits for another heartbeat's lock.
func TestSlowDisk(t *testing.T) { setup.SlowDisk(t, slowDiskFlag) }

func TestBeats(t *testing.T) {
	setup.Beats(t, func(ctx context.Context, dsn string, wire *sqlfault.Wire) (driver.Backend, error) {
		return openFaulty(ctx, dsn, "app", Options{}, new(sqlfault.Calls), sqlfault.How{Wire: wire})
	}, func(dsn servers.DSN, _ *stdsql.DB) { awaitLockWait(t, dsn) })
}

// TestStatistics: InnoDB keeps the statistics of every table in memory. If it renewed the
// statistics on disk, heartbeats would wait for these flushes.
func TestStatistics(t *testing.T) {
	t.Parallel()
	dsn := pool.Get(t, servers.MariaDB, nil).Database(t)
	open(t, dsn, Options{})
	rows, err := setup.DB(t, dsn).QueryContext(t.Context(), `SELECT table_name, create_options FROM information_schema.tables
WHERE table_schema = DATABASE() AND table_type = 'BASE TABLE'`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	found := 0
	for ; rows.Next(); found++ {
		var table, options string
		if err := rows.Scan(&table, &options); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(options, "stats_persistent=0") {
			t.Errorf("table %s has the options %q: InnoDB renews its statistics on disk", table, options)
		}
	}
	if err := rows.Err(); err != nil || found == 0 {
		t.Errorf("%d tables, %v", found, err)
	}
}

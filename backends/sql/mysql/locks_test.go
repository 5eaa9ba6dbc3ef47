package mysql

import (
	"testing"

	"github.com/tenure-go/tenure/internal/proof/servers"
	"github.com/tenure-go/tenure/internal/proof/sqlfault"
)

// TestLocks: R2.
func TestLocks(t *testing.T) {
	t.Parallel()
	dsn := pool.Get(t, servers.MariaDB, nil).Database(t)
	sqlfault.CheckLocks(t, open(t, dsn, Options{}), setup.DB(t, dsn))
}

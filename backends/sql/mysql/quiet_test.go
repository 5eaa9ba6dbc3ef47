package mysql

import (
	"testing"

	"github.com/tenure-go/tenure/internal/proof/servers"
	"github.com/tenure-go/tenure/internal/proof/sqlfault"
)

// TestQuiet counts the statements of two idle processes at a server that no other process uses. A
// look is one statement, which is also a transaction. A heartbeat takes four statements.
func TestQuiet(t *testing.T) {
	t.Parallel()
	server := servers.New(t, servers.MariaDB, nil)
	dsn := server.Database(t)
	db := setup.DB(t, dsn)
	sqlfault.CheckQuiet(t, 10, "statements", func() (n int64) {
		row := db.QueryRowContext(t.Context(), "SHOW GLOBAL STATUS LIKE 'Questions'")
		if err := row.Scan(new(string), &n); err != nil {
			t.Fatal(err)
		}
		return n
	}, func() bool { return true }, open(t, dsn, Options{}), open(t, dsn, Options{}))
}

package servers

import (
	"database/sql"
	"fmt"
	"testing"

	_ "github.com/go-sql-driver/mysql"
)

// TestGalera: every node has the commits of every other node.
func TestGalera(t *testing.T) {
	t.Parallel()
	for _, n := range []int{2, 3} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			members := NewCluster(t, Galera, n, nil).Members()
			dsn := members[0].Database(t)
			for i, m := range members {
				db, err := sql.Open("mysql", dsn.At(m.Addr()).Reveal())
				if err != nil {
					t.Fatal(err)
				}
				defer db.Close()
				ctx := t.Context()
				conn, err := db.Conn(ctx)
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close()
				var seen, size int
				for _, step := range []string{"SET SESSION wsrep_sync_wait = 7", "CREATE TABLE IF NOT EXISTS marks (node INT PRIMARY KEY)",
					fmt.Sprintf("INSERT INTO marks VALUES (%d)", i)} {
					if _, err := conn.ExecContext(ctx, step); err != nil {
						t.Fatal(err)
					}
				}
				if err := conn.QueryRowContext(ctx, "SELECT COUNT(*) FROM marks").Scan(&seen); err != nil || seen != i+1 {
					t.Errorf("node %d has %d marks, %v", i, seen, err)
				}
				err = conn.QueryRowContext(ctx,
					"SELECT VARIABLE_VALUE FROM information_schema.global_status WHERE VARIABLE_NAME = 'wsrep_cluster_size'").Scan(&size)
				if err != nil || size != n {
					t.Errorf("node %d is in a cluster of %d, %v", i, size, err)
				}
			}
		})
	}
}

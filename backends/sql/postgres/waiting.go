package postgres

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tenure-go/tenure/backends/sql"
)

// waitingAge is for how long an answer about the server's settings is good. A server is
// asked together with a statement that is sent anyway.
const waitingAge = time.Second

// commitsWait says whether commits wait for standbys.
const commitsWait = "SELECT current_setting('synchronous_standby_names') <> '' AND current_setting('synchronous_commit') <> 'local'"

// waiting is what is known of whether commits wait for standbys. Safe for concurrent use.
type waiting struct {
	forStandbys atomic.Bool
	asked       atomic.Pointer[time.Time] // nil is never
}

func (w *waiting) due() bool {
	at := w.asked.Load()
	return at == nil || time.Since(*at) > waitingAge
}

func (w *waiting) step() step {
	return step{name: "synchronous", text: commitsWait, each: func(r sql.Row) error {
		var waits bool
		err := r.Scan(&waits)
		if err == nil {
			w.forStandbys.Store(waits)
			now := time.Now()
			w.asked.Store(&now)
		}
		return err
	}}
}

// unreplicated is where a connection's custom data has the notice that noticed has kept.
const unreplicated = "tenure: not replicated"

// noticed keeps the warning of a server whose wait for the standbys was cancelled: it has
// committed, answers COMMIT with success, and a promotion may take the commit back (I2). The
// text is in the server's language; the name of its routine is not, and a proxy may omit it.
func noticed(c *pgconn.PgConn, n *pgconn.Notice) {
	if n.Code == "01000" && (n.Routine == "SyncRepWaitForLSN" || n.Routine == "") {
		c.CustomData()[unreplicated] = n
	}
}

// takeNotice returns what noticed has kept, as an error, and forgets it.
func takeNotice(c *pgconn.PgConn) error {
	n, is := c.CustomData()[unreplicated].(*pgconn.Notice)
	if !is {
		return nil
	}
	delete(c.CustomData(), unreplicated)
	return fmt.Errorf("tenure: committed, but not proven to be replicated: %w", (*pgconn.PgError)(n))
}

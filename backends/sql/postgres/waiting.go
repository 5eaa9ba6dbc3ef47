package postgres

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tenure-go/tenure/backends/sql/internal/engine"
)

// waitingAge is how long the result of commitsWait stays valid. The runner sends this query along
// with another statement.
const waitingAge = time.Second

const commitsWait = "SELECT current_setting('synchronous_standby_names') <> '' AND current_setting('synchronous_commit') <> 'local'"

// waiting records whether commits wait for standbys. It is safe for concurrent use.
type waiting struct {
	forStandbys atomic.Bool
	asked       atomic.Pointer[time.Time] // nil: never
}

func (w *waiting) due() bool {
	at := w.asked.Load()
	return at == nil || time.Since(*at) > waitingAge
}

func (w *waiting) step() step {
	return step{name: "synchronous", text: commitsWait, each: func(r engine.Row) error {
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

// unreplicated is the CustomData key under which noticed stores a notice.
const unreplicated = "tenure: not replicated"

// noticed stores the warning that a wait for standbys was cancelled. The server has committed and
// reports success, but a promotion may undo the commit (I2). The warning's text is localized,
// unlike the routine's name, which a proxy may omit.
func noticed(c *pgconn.PgConn, n *pgconn.Notice) {
	if n.Code == "01000" && (n.Routine == "SyncRepWaitForLSN" || n.Routine == "") {
		c.CustomData()[unreplicated] = n
	}
}

// takeNotice removes the stored notice and returns it as an error.
func takeNotice(c *pgconn.PgConn) error {
	n, is := c.CustomData()[unreplicated].(*pgconn.Notice)
	if !is {
		return nil
	}
	delete(c.CustomData(), unreplicated)
	return fmt.Errorf("tenure: committed, but not proven to be replicated: %w", (*pgconn.PgError)(n))
}

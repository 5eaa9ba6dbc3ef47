package mysql

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/go-sql-driver/mysql"

	"github.com/tenure-go/tenure/backends/sql/internal/engine"
	"github.com/tenure-go/tenure/core/driver"
)

// connections is a pool of connections for one purpose, and is safe for concurrent use. Each
// connection serves one call at a time and prepares each statement once. COMMIT is sent as a
// statement, because database/sql's Commit cannot be cancelled.
type connections struct {
	db        *sql.DB
	stmts     *engine.Statements
	slots     chan struct{}
	keep      int  // number of connections that stay open when idle
	certifies bool // see certifies

	mu   sync.Mutex
	idle []*connection
}

type connection struct {
	conn *sql.Conn
	prep *engine.Prepared
	used bool // by an earlier call
}

// newConnections returns a pool of at most n connections, each of which first runs the given
// statements.
func newConnections(cfg *mysql.Config, stmts *engine.Statements, n int, on server, first ...string) (*connections, error) {
	c, err := mysql.NewConnector(cfg)
	if err != nil {
		return nil, fmt.Errorf("tenure: opening the database: %w", err)
	}
	return &connections{db: sql.OpenDB(connector{c, append(on.settings(), first...)}), stmts: stmts,
		slots: make(chan struct{}, n), keep: n, certifies: on.certifies}, nil
}

// connector runs statements on each new connection.
type connector struct {
	sqldriver.Connector
	first []string
}

func (c connector) Connect(ctx context.Context) (sqldriver.Conn, error) {
	conn, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	for _, text := range c.first {
		if _, err := conn.(sqldriver.ExecerContext).ExecContext(ctx, text, nil); err != nil {
			return nil, errors.Join(err, conn.Close())
		}
	}
	return conn, nil
}

// acquire returns a connection that the caller must release or drop.
func (p *connections) acquire(ctx context.Context) (*connection, error) {
	select {
	case p.slots <- struct{}{}:
	case <-ctx.Done():
		return nil, fmt.Errorf("tenure: waiting for a connection: %w", driver.Ended(ctx))
	}
	p.mu.Lock()
	if n := len(p.idle); n > 0 {
		l := p.idle[n-1]
		p.idle = p.idle[:n-1]
		p.mu.Unlock()
		return l, nil
	}
	p.mu.Unlock()
	conn, err := p.db.Conn(ctx)
	if err == nil {
		var now bool
		if now, err = certifies(ctx, conn); err == nil && now != p.certifies {
			err = fmt.Errorf("%w: the server joined or left a cluster of Galera: restart this process", driver.ErrStoreChanged)
		}
		if err != nil {
			err = errors.Join(err, conn.Close())
		}
	}
	if err != nil {
		<-p.slots
		return nil, fmt.Errorf("tenure: connecting: %w", err)
	}
	return &connection{conn: conn, prep: engine.Prepare(conn, p.stmts)}, nil
}

// release keeps the connection for reuse, or closes it if enough idle connections are kept.
func (p *connections) release(l *connection) {
	l.used = true
	p.mu.Lock()
	enough := len(p.idle) >= p.keep
	if !enough {
		p.idle = append(p.idle, l)
	}
	p.mu.Unlock()
	if enough {
		l.close()
	}
	<-p.slots
}

// drop closes a connection, which ends any statement running on it.
func (p *connections) drop(l *connection) {
	l.close()
	<-p.slots
}

// ErrBadConn keeps the pool from handing the connection out again. An error means that the
// connection was already closed.
func (l *connection) close() {
	_ = l.conn.Raw(func(any) error { return sqldriver.ErrBadConn })
	_ = l.prep.Close()
	_ = l.conn.Close()
}

// All connections must be idle.
func (p *connections) close() error {
	p.doubt()
	return p.db.Close()
}

// After a call received no answer, doubt closes the idle connections. The cause often affects them
// too, and a call would fail on each of them.
func (p *connections) doubt() {
	p.mu.Lock()
	idle := slices.Clone(p.idle)
	p.idle = nil
	p.mu.Unlock()
	for _, l := range idle {
		l.close()
	}
}

// A call that fails because a kept connection had ended is repeated on another connection, so it
// must be safe to repeat. A connection is kept only if the call reports that it can be.
func (p *connections) with(ctx context.Context, do func(l *connection) (keep bool, err error)) error {
	for {
		l, err := p.acquire(ctx)
		if err != nil {
			return notApplied(err)
		}
		reused := l.used
		keep, err := do(l)
		if keep {
			p.release(l)
			return err
		}
		p.drop(l)
		if ctx.Err() != nil {
			p.doubt()
		}
		var again *staleError
		if !errors.As(err, &again) {
			return err
		}
		if err = again.err; !reused || ctx.Err() != nil {
			return err
		}
	}
}

// staleError reports that a call had no effect because its connection had already ended.
type staleError struct{ err error }

func (e *staleError) Error() string { return e.err.Error() }

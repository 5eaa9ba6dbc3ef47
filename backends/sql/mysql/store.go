package mysql

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/tenure-go/tenure/backends/sql"
	"github.com/tenure-go/tenure/backends/sql/internal/dialect"
)

const (
	// Connections beside those for the application's writes. On a slow disk there are six
	// heartbeats at once, and a batch of each other kind, which share a flush.
	rosterConns = 8
	// Where heartbeats overlapped, the surplus of their connections is closed again: if all are lost
	// in silence, each costs a heartbeat, and more than a few cost the lease.
	rosterIdle = 2
	readConns  = 3
	pingConns  = 3
	// idleLimit ends, on MariaDB, a transaction of a process that was stopped in
	// it, and lockLimit a wait for a lock, whose caller may be gone. In seconds.
	idleLimit = 2
	lockLimit = 2
	// sessionLimit ends a connection of MySQL, which has no limit for transactions.
	// In seconds.
	sessionLimit = 10
	// certifyTries is how often a transaction begins that another node's changes abort.
	certifyTries = 20
	// serverID is the incarnation in all statements (I2), in place of which a node of Galera has clusterID: each node
	// has its own server_id, and all have one history.
	serverID  = "@@global.server_id"
	clusterID = "(SELECT variable_value FROM information_schema.global_status WHERE variable_name = 'wsrep_cluster_state_uuid')"
)

// store runs the shared code's transactions, each on a connection of the connections it
// belongs to.
type store struct {
	data, roster, reads, pings *connections
	certifies                  bool // see certifies

	wake dialect.Wake
	life *dialect.Life
}

var _ sql.Store = (*store)(nil)

func openStore(ctx context.Context, cfg *mysql.Config, o *Options, stmts *sql.Statements) (_ *store, err error) {
	on, err := prepareDatabase(ctx, cfg, o)
	if err != nil {
		return nil, err
	}
	if on.certifies {
		stmts.Certify(serverID, clusterID)
	}
	limit := fmt.Sprintf("SET SESSION wait_timeout = %d", sessionLimit)
	if on.mariadb {
		limit = fmt.Sprintf("SET SESSION idle_transaction_timeout = %d", idleLimit)
	}
	write := []string{limit, fmt.Sprintf("SET SESSION innodb_lock_wait_timeout = %d", lockLimit),
		"SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE", "SET SESSION autocommit = 0"}
	// Each single read has a snapshot of its own, each transaction one for all.
	// A barrier's write is one of them.
	read := []string{limit, fmt.Sprintf("SET SESSION innodb_lock_wait_timeout = %d", lockLimit),
		"SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ WRITE", "SET SESSION autocommit = 1"}
	s := &store{life: dialect.NewLife(), certifies: on.certifies}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	if s.data, err = newConnections(cfg, stmts, o.MaxConns, on, write...); err != nil {
		return nil, err
	}
	if s.roster, err = newConnections(cfg, stmts, rosterConns, on, write...); err != nil {
		return nil, err
	}
	s.roster.keep = rosterIdle
	if s.reads, err = newConnections(cfg, stmts, readConns, on, read...); err != nil {
		return nil, err
	}
	s.pings, err = newConnections(cfg, stmts, pingConns, on, read...)
	return s, err
}

// transaction runs fn in a write transaction, which its first statement begins.
func (s *store) transaction(ctx context.Context, on *connections, fn func(context.Context, *sql.Tx) error) error {
	ctx, done, err := s.life.Enter(ctx)
	if err != nil {
		return err
	}
	defer done()
	return dialect.Cause(ctx, s.again(func() error { return s.begin(ctx, on, fn) }))
}

// again repeats a call that another node's changes aborted.
func (s *store) again(call func() error) error {
	for try := 1; ; try++ {
		err := call()
		if n := number(err); !s.certifies || n != errDeadlock && n != errNoSavepoint || try == certifyTries {
			return err
		}
		time.Sleep(rand.N(time.Duration(try) * time.Millisecond)) // the rivals do so as well
	}
}

// begin is one attempt at a transaction. MariaDB may not report that another node's changes aborted the transaction
// between two statements, and begins another one: then it has no savepoint.
func (s *store) begin(ctx context.Context, on *connections, fn func(context.Context, *sql.Tx) error) error {
	return on.with(ctx, func(l *connection) (bool, error) {
		tx := sql.NewTx(l.prep, nil)
		mark := func(text string) (err error) {
			if s.certifies {
				_, err = l.conn.ExecContext(ctx, text)
			}
			return err
		}
		err := mark("SAVEPOINT tenure")
		if err == nil {
			err = fn(ctx, tx)
		}
		if err == nil {
			err = mark("RELEASE SAVEPOINT tenure")
		}
		if err != nil {
			_, ending := l.conn.ExecContext(ctx, "ROLLBACK")
			if stale(err) {
				return false, &staleError{notApplied(err)}
			}
			return ending == nil, notApplied(err)
		}
		if _, err := l.conn.ExecContext(ctx, "COMMIT"); err != nil {
			return false, commitFailed(err)
		}
		s.wake.Broadcast(tx.Woke() &^ sql.Watchers)
		return true, nil
	})
}

func (s *store) WriteData(ctx context.Context, fn func(context.Context, *sql.Tx) error) error {
	return s.transaction(ctx, s.data, fn)
}

func (s *store) WriteRoster(ctx context.Context, fn func(context.Context, *sql.Tx) error) error {
	return s.transaction(ctx, s.roster, fn)
}

func (s *store) WriteBeat(ctx context.Context, fn func(context.Context, *sql.Tx) error) error {
	return s.transaction(ctx, s.roster, fn)
}

func (s *store) WriteOwners(ctx context.Context, fn func(context.Context, *sql.Tx, func() (*sql.Tx, error)) error) error {
	return s.transaction(ctx, s.data, func(ctx context.Context, tx *sql.Tx) error {
		return fn(ctx, tx, func() (*sql.Tx, error) { return tx, nil })
	})
}

func (s *store) ReadData(ctx context.Context, fn func(context.Context, *sql.Tx) error) error {
	return s.reading(ctx, s.reads, true, fn)
}

func (s *store) ReadRoster(ctx context.Context, fn func(context.Context, *sql.Tx) error) error {
	return s.reading(ctx, s.reads, true, fn)
}

func (s *store) Ping(ctx context.Context, fn func(ctx context.Context, data, roster *sql.Tx) error) error {
	return s.reading(ctx, s.pings, false, func(ctx context.Context, tx *sql.Tx) error { return fn(ctx, tx, tx) })
}

func (s *store) Read(ctx context.Context, fn func(ctx context.Context, data, roster *sql.Tx) error) error {
	return s.reading(ctx, s.reads, false, func(ctx context.Context, tx *sql.Tx) error { return fn(ctx, tx, tx) })
}

// reading runs fn on a connection of those given, on one snapshot or on one for each
// statement.
func (s *store) reading(ctx context.Context, on *connections, snapshot bool, fn func(context.Context, *sql.Tx) error) error {
	ctx, done, err := s.life.Enter(ctx)
	if err != nil {
		return err
	}
	defer done()
	return dialect.Cause(ctx, s.again(func() error { return s.read(ctx, on, snapshot, fn) }))
}

func (s *store) read(ctx context.Context, on *connections, snapshot bool, fn func(context.Context, *sql.Tx) error) error {
	return on.with(ctx, func(l *connection) (bool, error) {
		run := func(text string) error {
			_, err := l.conn.ExecContext(ctx, text)
			return err
		}
		var err error
		if snapshot {
			err = run("START TRANSACTION READ ONLY")
		}
		if err == nil {
			err = fn(ctx, sql.NewTx(l.prep, nil))
		}
		switch {
		case stale(err):
			return false, &staleError{err}
		case number(err) == errReadOnlyOption || number(err) == errReadOnlyServer:
			err = fmt.Errorf("%w: %w", sql.ErrReadOnly, err)
		}
		keep := true
		if snapshot {
			keep = run("COMMIT") == nil
		}
		return keep && ctx.Err() == nil, denied(err)
	})
}

func (s *store) Check() error { return nil }

func (s *store) Classify(err error) error { return notApplied(err) }

func (s *store) Changed(of sql.Readers) <-chan struct{} { return s.wake.C(of) }

// Hears is false: the database has no notifications.
func (s *store) Hears() bool { return false }

func (s *store) Close() error {
	if !s.life.End() {
		return nil
	}
	var errs []error
	for _, p := range []*connections{s.data, s.roster, s.reads, s.pings} {
		if p != nil {
			errs = append(errs, p.close())
		}
	}
	return errors.Join(errs...)
}

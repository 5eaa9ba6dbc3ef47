package mysql

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/tenure-go/tenure/backends/sql/internal/dialect"
	"github.com/tenure-go/tenure/backends/sql/internal/engine"
)

const (
	// Connections besides those for the application's writes. On a slow disk, six heartbeats
	// and a batch of each other kind are pending. They share a flush.
	rosterConns = 8
	// After overlapping heartbeats, their surplus connections are closed. If all connections
	// are lost silently, each one kept costs a heartbeat, and more than a few cost the lease.
	rosterIdle = 2
	readConns  = 3
	pingConns  = 3
	// On MariaDB, idleLimit, in seconds, ends the transaction of a process that was suspended
	// in it. lockLimit, also in seconds, ends a wait for a lock, because its caller may be
	// gone.
	idleLimit = 2
	lockLimit = 2
	// sessionLimit, in seconds, ends a connection of MySQL, which cannot limit transactions.
	sessionLimit = 10
	// certifyTries is the number of attempts at a transaction that another node's changes abort.
	certifyTries = 20
	// serverID is the incarnation in all statements (I2). On a node of Galera, clusterID replaces
	// it, because each node has its own server_id and all have one history.
	serverID  = "@@global.server_id"
	clusterID = "(SELECT variable_value FROM information_schema.global_status WHERE variable_name = 'wsrep_cluster_state_uuid')"
)

// store runs transactions, each on a connection for its purpose.
type store struct {
	data, roster, reads, pings *connections
	certifies                  bool // see certifies

	wake dialect.Wake
	life *dialect.Life
}

var _ engine.Store = (*store)(nil)

func openStore(ctx context.Context, cfg *mysql.Config, o *Options, stmts *engine.Statements) (_ *store, err error) {
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
	// Each single read has its own snapshot. A transaction has one for all its reads. A
	// barrier's write is a single read.
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

// transaction runs fn in a write transaction. fn's first statement begins it.
func (s *store) transaction(ctx context.Context, on *connections, fn func(context.Context, *engine.Tx) error) error {
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
		time.Sleep(rand.N(time.Duration(try) * time.Millisecond)) // because the rivals repeat theirs too
	}
}

// begin makes one attempt at a transaction. If another node's changes abort the transaction between
// two statements, MariaDB may begin a new one without an error. That one lacks the savepoint.
func (s *store) begin(ctx context.Context, on *connections, fn func(context.Context, *engine.Tx) error) error {
	return on.with(ctx, func(l *connection) (bool, error) {
		tx := engine.NewTx(l.prep, nil)
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
		s.wake.Broadcast(tx.Woke() &^ engine.Watchers)
		return true, nil
	})
}

func (s *store) WriteData(ctx context.Context, fn func(context.Context, *engine.Tx) error) error {
	return s.transaction(ctx, s.data, fn)
}

func (s *store) WriteRoster(ctx context.Context, fn func(context.Context, *engine.Tx) error) error {
	return s.transaction(ctx, s.roster, fn)
}

func (s *store) WriteBeat(ctx context.Context, fn func(context.Context, *engine.Tx) error) error {
	return s.transaction(ctx, s.roster, fn)
}

func (s *store) WriteOwners(ctx context.Context, fn func(context.Context, *engine.Tx, func() (*engine.Tx, error)) error) error {
	return s.transaction(ctx, s.data, func(ctx context.Context, tx *engine.Tx) error {
		return fn(ctx, tx, func() (*engine.Tx, error) { return tx, nil })
	})
}

func (s *store) ReadData(ctx context.Context, fn func(context.Context, *engine.Tx) error) error {
	return s.reading(ctx, s.reads, true, fn)
}

func (s *store) ReadRoster(ctx context.Context, fn func(context.Context, *engine.Tx) error) error {
	return s.reading(ctx, s.reads, true, fn)
}

func (s *store) Ping(ctx context.Context, fn func(ctx context.Context, data, roster *engine.Tx) error) error {
	return s.reading(ctx, s.pings, false, func(ctx context.Context, tx *engine.Tx) error { return fn(ctx, tx, tx) })
}

func (s *store) Read(ctx context.Context, fn func(ctx context.Context, data, roster *engine.Tx) error) error {
	return s.reading(ctx, s.reads, false, func(ctx context.Context, tx *engine.Tx) error { return fn(ctx, tx, tx) })
}

// reading runs fn on one of the connections, either on one snapshot or on one per statement.
func (s *store) reading(ctx context.Context, on *connections, snapshot bool, fn func(context.Context, *engine.Tx) error) error {
	ctx, done, err := s.life.Enter(ctx)
	if err != nil {
		return err
	}
	defer done()
	return dialect.Cause(ctx, s.again(func() error { return s.read(ctx, on, snapshot, fn) }))
}

func (s *store) read(ctx context.Context, on *connections, snapshot bool, fn func(context.Context, *engine.Tx) error) error {
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
			err = fn(ctx, engine.NewTx(l.prep, nil))
		}
		switch {
		case stale(err):
			return false, &staleError{err}
		case number(err) == errReadOnlyOption || number(err) == errReadOnlyServer:
			err = fmt.Errorf("%w: %w", engine.ErrReadOnly, err)
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

func (s *store) Changed(of engine.Readers) <-chan struct{} { return s.wake.C(of) }

// Hears returns false, because the database does not support notifications.
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

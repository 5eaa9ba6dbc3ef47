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
	// rosterConns is the number of connections for roster writes. On a slow disk, six heartbeats
	// and one batch of every other kind may be pending together and share a flush.
	rosterConns = 8
	// rosterIdle is the number of idle roster connections that the store keeps. If all of them fail
	// silently, a heartbeat fails on each one, so keeping too many would cost the lease.
	rosterIdle = 2
	readConns  = 3
	pingConns  = 3
	// idleLimit is the idle time, in seconds, after which MariaDB ends a transaction, such as that
	// of a suspended process. lockLimit limits the wait for a lock, in seconds, because the waiting
	// caller may be gone.
	idleLimit = 2
	lockLimit = 2
	// sessionLimit is the idle time, in seconds, after which MySQL closes a connection. MySQL
	// cannot limit transactions.
	sessionLimit = 10
	// certifyTries is the maximum number of attempts at a transaction that other nodes' changes
	// abort.
	certifyTries = 20
	// serverID is the SQL expression for the incarnation (I2). Galera nodes have different
	// server_ids but share one history, so clusterID replaces serverID there.
	serverID  = "@@global.server_id"
	clusterID = "(SELECT variable_value FROM information_schema.global_status WHERE variable_name = 'wsrep_cluster_state_uuid')"
)

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
	// Outside a transaction, each read has its own snapshot. Within a transaction, all reads share
	// one snapshot. A barrier's write also runs outside a transaction.
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

// The write transaction begins with fn's first statement.
func (s *store) transaction(ctx context.Context, on *connections, fn func(context.Context, *engine.Tx) error) error {
	ctx, done, err := s.life.Enter(ctx)
	if err != nil {
		return err
	}
	defer done()
	return dialect.Cause(ctx, s.again(func() error { return s.begin(ctx, on, fn) }))
}

// A call that another node's changes aborted is retried.
func (s *store) again(call func() error) error {
	for try := 1; ; try++ {
		err := call()
		if n := number(err); !s.certifies || n != errDeadlock && n != errNoSavepoint || try == certifyTries {
			return err
		}
		time.Sleep(rand.N(time.Duration(try) * time.Millisecond)) // because the rivals retry too
	}
}

// If another node's changes abort the transaction between two statements, MariaDB may silently
// begin a new transaction. Only the missing savepoint reveals this.
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

// If snapshot is true, all statements of fn share one snapshot. Otherwise, each statement has its
// own.
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

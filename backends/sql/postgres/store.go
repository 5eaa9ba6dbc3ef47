package postgres

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tenure-go/tenure/backends/sql/internal/dialect"
	"github.com/tenure-go/tenure/backends/sql/internal/engine"
)

const (
	// Connections besides those for the application's writes. Pings have connections only after a
	// lapse of trust.
	rosterConns = 3
	// rosterIdle is how many of these stay open without a call. If all are lost silently, each
	// costs a heartbeat, and one more must be available.
	rosterIdle = 2
	readConns  = 3
	pingConns  = 3
	// pingAfter is how long a connection for the application's writes may be unused without a test
	// before its next use. A commit sent together with all its statements on an ended connection
	// would have an unknown outcome.
	pingAfter = 50 * time.Millisecond
	// pingIdle is the same limit for the other connections, and for all while notifications
	// arrive. A server that ended these connections would have ended the listening one too.
	pingIdle = 10 * time.Second
	// idleLimit ends the transaction of a process that was suspended in it.
	idleLimit = 2 * time.Second
	// transactionLimit ends any transaction except a migration, if the server can. idleLimit does
	// not suffice, because a server that waits for the rest of a batch is not idle.
	transactionLimit = 5 * time.Second
	// transactionLimitVersion is the first such server, as server_version_num.
	transactionLimitVersion = 170000
)

// store runs transactions, each on a connection of the pool for its purpose.
type store struct {
	data, roster, reads, pings *pgxpool.Pool

	stmts       *engine.Statements
	write, read []string // statements that begin a transaction
	single      []string // the same for single reads; only with a pooler, which keeps no settings
	wake        dialect.Wake
	hints       *dialect.Hints // nil if the store only polls
	wait        waiting
	life        *dialect.Life
}

var _ engine.Store = (*store)(nil)

func openStore(ctx context.Context, dsn, namespace string, o *Options, stmts *engine.Statements) (_ *store, err error) {
	cfg, err := parse(dsn, o)
	if err != nil {
		return nil, err
	}
	version, err := prepareDatabase(ctx, cfg, o)
	if err != nil {
		return nil, err
	}
	if !o.Pooler && version >= transactionLimitVersion {
		cfg.ConnConfig.RuntimeParams["transaction_timeout"] = strconv.FormatInt(transactionLimit.Milliseconds(), 10)
	}
	s := &store{stmts: stmts, life: dialect.NewLife(), write: []string{"BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE"},
		read: []string{"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"}}
	if o.Pooler {
		limit := fmt.Sprintf("SET LOCAL idle_in_transaction_session_timeout = %d", idleLimit.Milliseconds())
		const shown = "SET LOCAL row_security = off"
		s.write, s.read = append(s.write, limit, shown), append(s.read, shown)
		s.single = s.write
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	for _, part := range []struct {
		pool  **pgxpool.Pool
		conns int
	}{{&s.data, o.MaxConns}, {&s.roster, rosterConns}, {&s.reads, readConns}, {&s.pings, pingConns}} {
		c := cfg.Copy()
		c.MaxConns, c.MinConns = int32(part.conns), 0
		c.BeforeClose = hangUp
		c.AfterConnect = func(context.Context, *pgx.Conn) error { // the server may have changed
			s.wait.asked.Store(nil)
			return nil
		}
		c.ShouldPing = func(_ context.Context, p pgxpool.ShouldPingParams) bool {
			return p.IdleDuration > pingIdle || p.IdleDuration > time.Second && !s.Hears()
		}
		if part.pool == &s.data {
			c.ShouldPing = func(_ context.Context, p pgxpool.ShouldPingParams) bool { return p.IdleDuration > pingAfter }
			if !o.Pooler { // planning a batch each time takes a third of its time, and changes nothing
				c.ConnConfig.RuntimeParams["plan_cache_mode"] = "force_generic_plan"
			}
		}
		if *part.pool, err = pgxpool.NewWithConfig(ctx, c); err != nil {
			return nil, fmt.Errorf("tenure: opening the database: %w", err)
		}
	}
	if !o.Pooler && !o.NoNotify {
		s.hints = dialect.NewHints(s.life.Context(), &s.wake, newLink(s, connector(cfg), o.TablePrefix+"changed", namespace),
			o.IdlePollPeriod)
		s.hints.Start()
	}
	return s, nil
}

// connector returns a function that makes connections as a pool with this configuration does.
func connector(cfg *pgxpool.Config) func(context.Context) (*pgx.Conn, error) {
	return func(ctx context.Context) (*pgx.Conn, error) {
		c := cfg.ConnConfig.Copy()
		if err := cfg.BeforeConnect(ctx, c); err != nil {
			return nil, err
		}
		return pgx.ConnectConfig(ctx, c)
	}
}

// transaction runs fn in a write transaction on a connection of the pool.
func (s *store) transaction(ctx context.Context, pool *pgxpool.Pool, fn func(context.Context, *engine.Tx) error) error {
	ctx, done, err := s.life.Enter(ctx)
	if err != nil {
		return err
	}
	defer done()
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return dialect.Cause(ctx, notApplied(err))
	}
	defer func() {
		if pool == s.roster && pool.Stat().IdleConns() >= rosterIdle {
			_ = conn.Conn().Close(ctx)
		}
		conn.Release()
	}()
	r := &runner{conn: conn.Conn(), stmts: s.stmts, begin: s.write, wait: &s.wait}
	tx := engine.RunOn(r, s.stmts)
	if err := fn(ctx, tx); err != nil {
		r.rollback(ctx)
		return dialect.Cause(ctx, notApplied(err))
	}
	if err := r.commit(ctx); err != nil {
		r.rollback(ctx)
		return dialect.Cause(ctx, commitFailed(err))
	}
	s.wake.Broadcast(tx.Woke() &^ engine.Watchers)
	if s.hints != nil {
		s.hints.Tell(tx.Woke())
	}
	return nil
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
	return s.reading(ctx, s.reads, s.read, fn)
}

func (s *store) ReadRoster(ctx context.Context, fn func(context.Context, *engine.Tx) error) error {
	return s.reading(ctx, s.reads, s.read, fn)
}

func (s *store) Read(ctx context.Context, fn func(ctx context.Context, data, roster *engine.Tx) error) error {
	return s.reading(ctx, s.reads, s.single, func(ctx context.Context, tx *engine.Tx) error { return fn(ctx, tx, tx) })
}

func (s *store) Ping(ctx context.Context, fn func(ctx context.Context, data, roster *engine.Tx) error) error {
	return s.reading(ctx, s.pings, s.single, func(ctx context.Context, tx *engine.Tx) error { return fn(ctx, tx, tx) })
}

// reading runs fn on a connection of the pool, after the statements in begin.
func (s *store) reading(ctx context.Context, pool *pgxpool.Pool, begin []string, fn func(context.Context, *engine.Tx) error) error {
	ctx, done, err := s.life.Enter(ctx)
	if err != nil {
		return err
	}
	defer done()
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return dialect.Cause(ctx, fmt.Errorf("tenure: reading: %w", denied(err)))
	}
	defer conn.Release()
	r := &runner{conn: conn.Conn(), stmts: s.stmts, begin: begin, wait: &s.wait}
	if err = fn(ctx, engine.RunOn(r, s.stmts)); err == nil {
		err = r.commit(ctx)
	}
	r.rollback(ctx)
	if err != nil {
		return dialect.Cause(ctx, denied(err))
	}
	return nil
}

// hangUp immediately closes a connection whose call was ended by its context. The library would
// wait up to 15 s for the server to end it, and the pool would count it until then.
func hangUp(conn *pgx.Conn) {
	if conn.IsClosed() {
		_ = conn.PgConn().Conn().Close()
	}
}

func (s *store) Check() error { return nil }

func (s *store) Classify(err error) error { return notApplied(err) }

func (s *store) Changed(of engine.Readers) <-chan struct{} { return s.wake.C(of) }

func (s *store) Hears() bool { return s.hints != nil && s.hints.Hears() }

func (s *store) Close() error {
	if !s.life.End() {
		return nil
	}
	if s.hints != nil {
		s.hints.Close()
	}
	for _, p := range []*pgxpool.Pool{s.data, s.roster, s.reads, s.pings} {
		if p != nil {
			p.Close()
		}
	}
	return nil
}

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
	// rosterConns is the number of connections for roster writes.
	rosterConns = 3
	// rosterIdle is the number of these connections that stay open when idle. If they are all lost
	// silently, a heartbeat fails on each of them, so another connection must be available.
	rosterIdle = 2
	readConns  = 3
	pingConns  = 3
	// If a connection for the application's writes was idle longer than pingAfter, the pool tests
	// it before the next use. Otherwise, a commit that is sent in one batch on a closed connection
	// would have an unknown outcome.
	pingAfter = 50 * time.Millisecond
	// The other connections are tested after pingIdle, or after 1 s while no notifications arrive.
	// A server that ended them would also end the listening connection.
	pingIdle = 10 * time.Second
	// idleLimit is the idle time after which the server ends a transaction, such as that of a
	// suspended process.
	idleLimit = 2 * time.Second
	// transactionLimit is the longest duration of any transaction except a migration, if the server
	// supports such a limit. A session that waits for the rest of a batch is not idle, so idleLimit
	// does not suffice.
	transactionLimit = 5 * time.Second
	// transactionLimitVersion is the server_version_num of the first version with this limit.
	transactionLimitVersion = 170000
)

type store struct {
	data, roster, reads, pings *pgxpool.Pool

	stmts       *engine.Statements
	write, read []string // statements that begin a transaction
	single      []string // for single reads; only with a pooler, which keeps no settings
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
			if !o.Pooler { // planning each batch takes a third of its time, and changes nothing
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

// connector returns a function that opens connections as a pool with this configuration would.
func connector(cfg *pgxpool.Config) func(context.Context) (*pgx.Conn, error) {
	return func(ctx context.Context) (*pgx.Conn, error) {
		c := cfg.ConnConfig.Copy()
		if err := cfg.BeforeConnect(ctx, c); err != nil {
			return nil, err
		}
		return pgx.ConnectConfig(ctx, c)
	}
}

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

// hangUp immediately closes a connection whose call was ended by its context. Otherwise, the
// library would wait up to 15 s for the server to close it, and the pool would still count the
// connection.
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

package postgres

import (
	"context"
	stdsql "database/sql"
	"embed"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tenure-go/tenure/backends/sql"
	"github.com/tenure-go/tenure/core/driver"
)

// Name is the backend's name in Info and of its Opener.
const Name = "postgres"

// buckets is how many counters order the logs of a new namespace: a commit holds
// one until it is durable.
const buckets = 16

// FenceIdleTimeout is after how long the server ends a transaction in which
// FenceTx or FencePgx was called and that sends no further statement. A stopped
// process would otherwise keep its shard from being taken.
const FenceIdleTimeout = 5 * time.Second

// incarnation tells one history of a server from another (I2): a promotion and a
// recovery to a point in time begin a new timeline, and another server has another
// identifier. pg_control_checkpoint has the timeline of the last checkpoint only, which
// is the former one right after a promotion.
const incarnation = "CASE WHEN pg_is_in_recovery() THEN '' ELSE " +
	"(SELECT system_identifier FROM pg_control_system()) || '/' || left(pg_walfile_name(pg_current_wal_lsn()), 8) END"

//go:embed schema statements.sql
var files embed.FS

// Backend is a namespace in a PostgreSQL database. It implements driver.Backend;
// safe for concurrent use.
type Backend struct {
	*sql.Backend
	pg     *store
	tables string // begins their names
}

var _ driver.Backend = (*Backend)(nil)

// Open opens the namespace in the database that dsn names, a URL or keywords as
// for libpq. The context bounds the opening only. nil options work. An error says
// in one line what to change.
func Open(ctx context.Context, dsn, namespace string, o *Options) (*Backend, error) {
	opts, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	if err := driver.CheckNamespace(namespace); err != nil {
		return nil, err
	}
	stmts, err := compile(opts)
	if err != nil {
		return nil, err
	}
	st, err := openStore(ctx, dsn, namespace, opts, stmts)
	if err != nil {
		return nil, err
	}
	shared, err := sql.New(ctx, config(namespace, opts, st, stmts))
	if err != nil {
		return nil, err
	}
	shared.Certificate = opts.certificate
	return &Backend{Backend: shared, pg: st, tables: opts.tables()}, nil
}

func compile(o *Options, change ...func(string) string) (*sql.Statements, error) {
	text, err := files.ReadFile("statements.sql")
	if err != nil {
		return nil, err
	}
	now := incarnation
	if o.NoIncarnation {
		now = "''"
	}
	file := strings.ReplaceAll(string(text), "{incarnation}", now)
	for _, c := range change {
		file = c(file)
	}
	return sql.Compile(file, o.tables(), func(i int) string { return "$" + strconv.Itoa(i) })
}

func config(namespace string, o *Options, st *store, stmts *sql.Statements) sql.Config {
	return sql.Config{
		Name: Name, Namespace: namespace, Store: st, Statements: stmts, ShowsEarly: st.wait.forStandbys.Load,
		Limits: driver.Limits{
			BatchItems: 1000, WriteOps: 4096, WriteBytes: 1 << 20,
			PollPeriod: o.PollPeriod, IdlePollPeriod: o.IdlePollPeriod, MinTTL: 500 * time.Millisecond,
		},
		Create: o.Create, NewRoster: o.NewRoster, Buckets: buckets,
	}
}

// limitIdle lowers the time-out of the transaction it runs in to FenceIdleTimeout.
func limitIdle() string {
	return fmt.Sprintf(`SELECT set_config('idle_in_transaction_session_timeout', '%d', true)
WHERE current_setting('idle_in_transaction_session_timeout')::interval NOT BETWEEN interval '1 ms' AND interval '%[1]d ms'`,
		FenceIdleTimeout.Milliseconds())
}

// FenceTx checks a lease inside the caller's own transaction on the same
// database, with any driver that knows $1: it locks the shard's row until that
// transaction ends, so that what it writes takes effect if and only if the fence
// is the shard's current grant when it commits (F1). Otherwise the error is a
// *driver.FencedError with the owner as it is, and the caller must roll back.
// ErrRetry means that the transaction cannot go on and may be tried again from its
// start. Fences of one lease do not wait for each other, nor for commits. The
// server ends the transaction if it idles for FenceIdleTimeout.
func (b *Backend) FenceTx(ctx context.Context, tx *stdsql.Tx, fence driver.Fence) error {
	return b.fence(ctx, fence, func(text string, args []any, dest ...any) (bool, error) {
		err := tx.QueryRowContext(ctx, text, args...).Scan(dest...)
		if errors.Is(err, stdsql.ErrNoRows) {
			return false, nil
		}
		return err == nil, err
	})
}

// FencePgx is FenceTx for a transaction of pgx.
func (b *Backend) FencePgx(ctx context.Context, tx pgx.Tx, fence driver.Fence) error {
	return b.fence(ctx, fence, func(text string, args []any, dest ...any) (bool, error) {
		err := tx.QueryRow(ctx, text, args...).Scan(dest...)
		if errors.Is(err, pgx.ErrNoRows) {
			return false, nil
		}
		return err == nil, err
	})
}

func (b *Backend) fence(ctx context.Context, fence driver.Fence, row func(text string, args []any, dest ...any) (bool, error)) error {
	limited := false
	return sql.FenceOn(ctx, b.Backend, fence, func(text string, args []any, dest ...any) (bool, error) {
		if !limited {
			limited = true
			if _, err := row(limitIdle(), nil, new(string)); err != nil {
				return false, err
			}
		}
		return row(text, args, dest...)
	})
}

package postgres

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tenure-go/tenure/backends/sql/internal/engine"
	"github.com/tenure-go/tenure/core/driver"
)

const backendName = "postgres"

// buckets is the number of tail counters of a new namespace. A commit keeps one of them locked
// until the commit is durable.
const buckets = 16

// fenceIdleTimeout is the idle time after which the server ends a transaction that called FenceTx
// or FencePgx. Without this limit, a stopped process could prevent other processes from claiming
// its shard.
const fenceIdleTimeout = 5 * time.Second

// incarnation identifies one history of a server (I2). A promotion or a point-in-time recovery
// begins a new timeline. An unrelated server has a different identifier. The function
// pg_control_checkpoint does not suffice, because it shows the last checkpoint's timeline, which is
// outdated right after a promotion.
const incarnation = "CASE WHEN pg_is_in_recovery() THEN '' ELSE " +
	"(SELECT system_identifier FROM pg_control_system()) || '/' || left(pg_walfile_name(pg_current_wal_lsn()), 8) END"

//go:embed schema statements.sql
var files embed.FS

// Backend is a namespace in a PostgreSQL database. It implements driver.Backend and is safe for
// concurrent use.
type Backend struct {
	*engine.Backend
	pg     *store
	tables string // prefix of the tables' names
}

var _ driver.Backend = (*Backend)(nil)

// Open opens the namespace in the database that dsn describes as a URL or as libpq keywords. The
// context applies only to Open, and o may be nil. An error explains in one line what to change.
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
	shared, err := engine.New(ctx, config(namespace, opts, st, stmts))
	if err != nil {
		return nil, err
	}
	shared.Certificate = opts.certificate
	return &Backend{Backend: shared, pg: st, tables: opts.tables()}, nil
}

func compile(o *Options, change ...func(string) string) (*engine.Statements, error) {
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
	return engine.Compile(file, o.tables(), func(i int) string { return "$" + strconv.Itoa(i) })
}

func config(namespace string, o *Options, st *store, stmts *engine.Statements) engine.Config {
	return engine.Config{
		Name: backendName, Namespace: namespace, Store: st, Statements: stmts, ShowsEarly: st.wait.forStandbys.Load,
		Limits: driver.Limits{
			BatchItems: 1000, WriteOps: 4096, WriteBytes: 1 << 20,
			PollPeriod: o.PollPeriod, IdlePollPeriod: o.IdlePollPeriod, MinTTL: 500 * time.Millisecond,
		},
		Create: o.Create, NewRoster: o.NewRoster, Buckets: buckets,
	}
}

// limitIdle returns SQL that lowers the current transaction's idle timeout to fenceIdleTimeout.
func limitIdle() string {
	return fmt.Sprintf(`SELECT set_config('idle_in_transaction_session_timeout', '%d', true)
WHERE current_setting('idle_in_transaction_session_timeout')::interval NOT BETWEEN interval '1 ms' AND interval '%[1]d ms'`,
		fenceIdleTimeout.Milliseconds())
}

// FenceTx checks a lease inside the caller's own transaction on the same database, with any driver
// that supports placeholders such as $1. FenceTx locks the shard's row until that transaction ends.
// The transaction's writes take effect only if the fence is the shard's current grant when the
// transaction commits (F1). Otherwise, the error is a *driver.FencedError with the current owner,
// and the caller must roll back. ErrRetry means that the transaction cannot continue and may be
// retried from its start. Transactions that fence the same lease do not wait for each other or for
// commits. The server ends a transaction that is idle for 5 s.
func (b *Backend) FenceTx(ctx context.Context, tx *sql.Tx, fence driver.Fence) error {
	return b.fence(ctx, fence, func(text string, args []any, dest ...any) (bool, error) {
		err := tx.QueryRowContext(ctx, text, args...).Scan(dest...)
		if errors.Is(err, sql.ErrNoRows) {
			return false, nil
		}
		return err == nil, err
	})
}

// FencePgx is like FenceTx, but for a pgx transaction.
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
	return engine.FenceOn(ctx, b.Backend, fence, func(text string, args []any, dest ...any) (bool, error) {
		if !limited {
			limited = true
			if _, err := row(limitIdle(), nil, new(string)); err != nil {
				return false, err
			}
		}
		return row(text, args, dest...)
	})
}

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

// backendName is the backend's name in Info and of its Opener.
const backendName = "postgres"

// buckets is the number of counters that order the logs of a new namespace. A commit holds one
// until it is durable.
const buckets = 16

// fenceIdleTimeout is the idle time after which the server ends a transaction that called
// FenceTx or FencePgx. Otherwise, a stopped process would keep its shard from being taken.
const fenceIdleTimeout = 5 * time.Second

// incarnation tells one history of a server from another (I2). A promotion and a recovery to a
// point in time begin a new timeline. Another server has another identifier.
// pg_control_checkpoint would not do, because it shows the timeline of the last checkpoint.
// Right after a promotion, that is the previous one.
const incarnation = "CASE WHEN pg_is_in_recovery() THEN '' ELSE " +
	"(SELECT system_identifier FROM pg_control_system()) || '/' || left(pg_walfile_name(pg_current_wal_lsn()), 8) END"

//go:embed schema statements.sql
var files embed.FS

// Backend is a namespace in a PostgreSQL database. It implements driver.Backend and is safe for
// concurrent use.
type Backend struct {
	*engine.Backend
	pg     *store
	tables string // begins their names
}

var _ driver.Backend = (*Backend)(nil)

// Open opens the namespace in the database that dsn names, as a URL or as keywords of libpq.
// The context limits the opening only. o may be nil. An error says in one line what to change.
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

// limitIdle lowers the time-out of the transaction it runs in to fenceIdleTimeout.
func limitIdle() string {
	return fmt.Sprintf(`SELECT set_config('idle_in_transaction_session_timeout', '%d', true)
WHERE current_setting('idle_in_transaction_session_timeout')::interval NOT BETWEEN interval '1 ms' AND interval '%[1]d ms'`,
		fenceIdleTimeout.Milliseconds())
}

// FenceTx checks a lease inside the caller's own transaction on the same database, with any
// driver that supports $1. It locks the shard's row until that transaction ends. So the
// transaction's writes take effect if and only if the fence is the shard's current grant at the
// commit (F1). Otherwise, the error is a *driver.FencedError with the current owner, and the
// caller must roll back. ErrRetry means that the transaction cannot continue and may be tried
// again from its start. Fences of one lease wait neither for each other nor for commits. The
// server ends the transaction if it idles for 5 s.
func (b *Backend) FenceTx(ctx context.Context, tx *sql.Tx, fence driver.Fence) error {
	return b.fence(ctx, fence, func(text string, args []any, dest ...any) (bool, error) {
		err := tx.QueryRowContext(ctx, text, args...).Scan(dest...)
		if errors.Is(err, sql.ErrNoRows) {
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

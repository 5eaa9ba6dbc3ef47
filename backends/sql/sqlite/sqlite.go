package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/tenure-go/tenure/backends/sql/internal/engine"
	"github.com/tenure-go/tenure/core/driver"
)

const backendName = "sqlite"

// userWait is how long a connection from OpenDB waits for the write lock, in milliseconds, unless
// the call's context ends earlier.
const userWait = 60_000

// Backend is a namespace in an SQLite database. It implements driver.Backend and is safe for
// concurrent use.
type Backend struct {
	*engine.Backend
	db   *sql.DB
	path string
}

var _ driver.Backend = (*Backend)(nil)

// Open opens the namespace in the data file at path and in the members' file, path + "-members". It
// creates missing parts, unless Options.Create is false. The context applies only to Open, and o
// may be nil. An error explains in one line what to change. If part of the store was lost, the
// error is ErrStoreChanged.
func Open(ctx context.Context, path, namespace string, o *Options) (*Backend, error) {
	opts, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	if err := driver.CheckNamespace(namespace); err != nil {
		return nil, err
	}
	if path, err = cleanPath(path); err != nil {
		return nil, err
	}
	text, err := files.ReadFile("statements.sql")
	if err != nil {
		return nil, err
	}
	stmts, err := engine.Compile(string(text), opts.TablePrefix, placeholder)
	if err != nil {
		return nil, err
	}
	st, err := openStore(ctx, path, opts, stmts)
	if err != nil {
		return nil, err
	}
	shared, err := engine.New(ctx, config(namespace, opts, st, stmts))
	if err != nil {
		return nil, err
	}
	c, err := settled(path, userWait, flushed, st.data.check)
	if err != nil {
		return nil, errors.Join(err, shared.Close())
	}
	return &Backend{Backend: shared, db: sql.OpenDB(counting{c, st.data.count}), path: path}, nil
}

func placeholder(i int) string { return "?" + strconv.Itoa(i) }

func config(namespace string, o *Options, st engine.Store, stmts *engine.Statements) engine.Config {
	return engine.Config{
		Name: backendName, Namespace: namespace, Store: st, Statements: stmts,
		Limits: driver.Limits{
			BatchItems: 1000, WriteOps: 4096, WriteBytes: 1 << 20,
			PollPeriod: o.PollPeriod, IdlePollPeriod: o.IdlePollPeriod, MinTTL: 250 * time.Millisecond,
		},
		Create: o.create(), NewRoster: o.NewRoster, Buckets: 1,
	}
}

func cleanPath(path string) (string, error) {
	if path == "" || strings.HasPrefix(path, "file:") || strings.Contains(path, ":memory:") || strings.ContainsRune(path, 0) {
		return "", fmt.Errorf("tenure: %w: path %.80q: name a database file; neither a URI nor memory will do", driver.ErrInvalid, path)
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		return "", fmt.Errorf("tenure: %w: path %.80q: %w", driver.ErrInvalid, path, err)
	}
	if real, err := filepath.EvalSymlinks(abs); err == nil {
		return real, nil
	}
	if to, err := os.Readlink(abs); err == nil { // to a file that does not exist yet
		if !filepath.IsAbs(to) {
			to = filepath.Join(filepath.Dir(abs), to)
		}
		return to, nil
	}
	return abs, nil
}

// BeginTx begins a transaction on the data file for the caller's own tables, for use with FenceTx.
// The transaction takes the write lock when it begins, so it cannot fail later because another
// transaction has the lock. The wait for the lock ends with the context. Keep the transaction
// short, because no other process can commit to this file while the transaction runs. Tenure counts
// the commit, and therefore notices if it is lost. ErrRetry means that the call may be repeated.
// ErrStoreChanged means that a database file was removed or replaced.
func (b *Backend) BeginTx(ctx context.Context) (*sql.Tx, error) {
	tx, err := b.db.BeginTx(ctx, nil)
	if errors.Is(err, driver.ErrStoreChanged) {
		return nil, err
	}
	if err != nil {
		return nil, fmt.Errorf("tenure: %w: beginning a transaction: %w", driver.ErrRetry, err)
	}
	return tx, nil
}

// Close ends blocked calls and closes both files. See driver.Backend. End all transactions from
// BeginTx first. If a log was removed, Close writes the log back, which may take 5 s. If Close
// cannot write the log back, it returns ErrStoreChanged.
func (b *Backend) Close() error { return errors.Join(b.Backend.Close(), b.db.Close()) }

// OpenDB opens an existing data file for the caller's own tables. The DB has the settings on which
// Tenure relies: full synchronization, and transactions that take the write lock when they begin.
// Unlike transactions from BeginTx, transactions on the DB are not counted. Tenure notices a loss
// of their commits only if a later counted commit was also lost. The caller closes the DB.
func OpenDB(path string) (*sql.DB, error) {
	path, err := cleanPath(path)
	if err != nil {
		return nil, err
	}
	c, err := settled(path, userWait, flushed, nil)
	if err != nil {
		return nil, err
	}
	return sql.OpenDB(c), nil
}

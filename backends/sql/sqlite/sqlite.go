package sqlite

import (
	"context"
	stdsql "database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/tenure-go/tenure/backends/sql"
	"github.com/tenure-go/tenure/core/driver"
)

// Name is the backend's name in Info and of its Opener.
const Name = "sqlite"

// userWait is how long a connection of OpenDB waits for the write lock, in
// milliseconds, unless its context ends before.
const userWait = 60_000

// Backend is a namespace in an SQLite database. It implements driver.Backend;
// safe for concurrent use.
type Backend struct {
	*sql.Backend
	db   *stdsql.DB
	path string
}

var _ driver.Backend = (*Backend)(nil)

// Open opens the namespace in the database file at path, and in the members' file
// beside it, path + "-members". It creates what is missing unless
// Options.Create is false. The context bounds the opening only. nil options
// work. An error says in one line what to change; a store that lost one of its
// parts is ErrStoreChanged.
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
	stmts, err := sql.Compile(string(text), opts.TablePrefix, placeholder)
	if err != nil {
		return nil, err
	}
	st, err := openStore(ctx, path, opts, stmts)
	if err != nil {
		return nil, err
	}
	shared, err := sql.New(ctx, config(namespace, opts, st, stmts))
	if err != nil {
		return nil, err
	}
	c, err := settled(path, userWait, flushed, st.data.check)
	if err != nil {
		return nil, errors.Join(err, shared.Close())
	}
	return &Backend{Backend: shared, db: stdsql.OpenDB(counting{c, st.data.count}), path: path}, nil
}

func placeholder(i int) string { return "?" + strconv.Itoa(i) }

func config(namespace string, o *Options, st sql.Store, stmts *sql.Statements) sql.Config {
	return sql.Config{
		Name: Name, Namespace: namespace, Store: st, Statements: stmts,
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
	if to, err := os.Readlink(abs); err == nil { // to a file that is yet to be made
		if !filepath.IsAbs(to) {
			to = filepath.Join(filepath.Dir(abs), to)
		}
		return to, nil
	}
	return abs, nil
}

// BeginTx begins a transaction on the data file for tables of your own, in which
// FenceTx proves a lease. It takes the write lock at once, so it cannot fail later
// for want of it; waiting for the lock ends with the context. Keep it short:
// while it runs nobody else commits in this file. What it commits is counted, so
// that its loss is noticed. ErrRetry means that it may be tried again, ErrStoreChanged
// that a file of the database was removed or replaced.
func (b *Backend) BeginTx(ctx context.Context) (*stdsql.Tx, error) {
	tx, err := b.db.BeginTx(ctx, nil)
	if errors.Is(err, driver.ErrStoreChanged) {
		return nil, err
	}
	if err != nil {
		return nil, fmt.Errorf("tenure: %w: beginning a transaction: %w", driver.ErrRetry, err)
	}
	return tx, nil
}

// Close unblocks what is blocked and closes both files. See driver.Backend. A
// transaction of BeginTx must have ended before. If a log was removed, Close writes it
// back, for up to 5 s, and ErrStoreChanged says that it could not.
func (b *Backend) Close() error { return errors.Join(b.Backend.Close(), b.db.Close()) }

// OpenDB opens an existing data file for tables of your own, with the settings
// that Tenure relies on: full synchronisation, and transactions that take the
// write lock when they begin. Unlike those of BeginTx they are not counted: that what
// they committed is lost is noticed only if something that is counted was lost after
// it. The caller closes it.
func OpenDB(path string) (*stdsql.DB, error) {
	path, err := cleanPath(path)
	if err != nil {
		return nil, err
	}
	c, err := settled(path, userWait, flushed, nil)
	if err != nil {
		return nil, err
	}
	return stdsql.OpenDB(c), nil
}

package mysql

import (
	"context"
	"embed"
	"time"

	"github.com/tenure-go/tenure/backends/sql/internal/engine"
	"github.com/tenure-go/tenure/core/driver"
)

const backendName = "mysql"

// buckets is the number of tail counters of a new namespace. A commit keeps one of them locked
// until the commit is durable.
const buckets = 16

//go:embed schema statements.sql
var files embed.FS

// Backend is a namespace in a MariaDB or MySQL database. It implements driver.Backend and is safe
// for concurrent use. FenceTx works on any connection to the same server or cluster, regardless of
// the connection's default database. A fenced transaction and a commit to the same shard exclude
// each other, so one may wait for the other.
type Backend struct {
	*engine.Backend
	my *store
}

var _ driver.Backend = (*Backend)(nil)

// Open opens the namespace in the database that dsn describes. The DSN has the format of
// github.com/go-sql-driver/mysql. The context applies only to Open, and o may be nil. An error
// explains in one line what to change.
func Open(ctx context.Context, dsn, namespace string, o *Options) (*Backend, error) {
	opts, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	if err := driver.CheckNamespace(namespace); err != nil {
		return nil, err
	}
	cfg, err := parse(dsn, opts)
	if err != nil {
		return nil, err
	}
	stmts, err := compile(tables(cfg, opts))
	if err != nil {
		return nil, err
	}
	st, err := openStore(ctx, cfg, opts, stmts)
	if err != nil {
		return nil, err
	}
	shared, err := engine.New(ctx, config(namespace, opts, st, stmts))
	if err != nil {
		return nil, err
	}
	return &Backend{Backend: shared, my: st}, nil
}

func compile(prefix string, change ...func(string) string) (*engine.Statements, error) {
	text, err := files.ReadFile("statements.sql")
	if err != nil {
		return nil, err
	}
	file := string(text)
	for _, c := range change {
		file = c(file)
	}
	return engine.Compile(file, prefix, func(int) string { return "?" })
}

func config(namespace string, o *Options, st engine.Store, stmts *engine.Statements) engine.Config {
	return engine.Config{
		Name: backendName, Namespace: namespace, Store: st, Statements: stmts,
		Limits: driver.Limits{
			BatchItems: 1000, CommitCalls: 2, WriteOps: 4096, WriteBytes: 1 << 20,
			PollPeriod: o.PollPeriod, IdlePollPeriod: o.IdlePollPeriod, MinTTL: 500 * time.Millisecond,
		},
		Create: o.Create, NewRoster: o.NewRoster, Buckets: buckets,
	}
}

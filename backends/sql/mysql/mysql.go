package mysql

import (
	"context"
	"embed"
	"time"

	"github.com/tenure-go/tenure/backends/sql/internal/engine"
	"github.com/tenure-go/tenure/core/driver"
)

// backendName is the backend's name in Info and of its Opener.
const backendName = "mysql"

// buckets is the number of counters that order the logs of a new namespace. A commit holds one
// until it is durable.
const buckets = 16

//go:embed schema statements.sql
var files embed.FS

// Backend is a namespace in a MariaDB or MySQL database. It implements driver.Backend and is
// safe for concurrent use. Its FenceTx works on any connection to the same server or cluster,
// whatever its default database. A fence there and the commits of its shard wait for each
// other.
type Backend struct {
	*engine.Backend
	my *store
}

var _ driver.Backend = (*Backend)(nil)

// Open opens the namespace in the database that dsn names, in the form of
// github.com/go-sql-driver/mysql. The context limits the opening only. o may be nil. An error says
// in one line what to change.
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

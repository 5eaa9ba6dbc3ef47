package postgres

import (
	"context"
	stdsql "database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/tenure-go/tenure/backends/sql"
	"github.com/tenure-go/tenure/backends/sql/sqlfault"
	"github.com/tenure-go/tenure/conformance"
	"github.com/tenure-go/tenure/conformance/servers"
	"github.com/tenure-go/tenure/core/driver"
)

// The namespaces of one test's cases live in one database.
const caseNamespace = "suite/case"

func TestConformance(t *testing.T) {
	dsn := pool.Get(t, servers.Postgres, nil).Database(t)
	conform(t, dsn, dsn, Options{})
}

func TestConformanceSimpleProtocol(t *testing.T) {
	dsn := pool.Get(t, servers.Postgres, nil).Database(t)
	conform(t, dsn, dsn.With("default_query_exec_mode", "simple_protocol"), Options{NoNotify: true})
}

func TestConformancePgBouncer(t *testing.T) {
	server := pool.Get(t, servers.Postgres, nil)
	dsn := server.Database(t)
	bouncer := pool.Get(t, servers.PgBouncer, &servers.Options{Upstream: server})
	conform(t, dsn, dsn.At(bouncer.Addr()), Options{Pooler: true})
}

// conform runs the suite with backends that use dsn and its own access to the
// database by direct.
func conform(t *testing.T, direct, dsn servers.DSN, o Options) {
	if err := Migrate(t.Context(), direct.Reveal(), &o); err != nil {
		t.Fatal(err)
	}
	db, err := stdsql.Open("pgx", direct.Reveal())
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	o.Create, o.MaxConns = true, 2
	cases := &counter{}
	conformance.Test(t, conformance.Harness{
		Name: Name,
		New: func(t conformance.T) *conformance.Store {
			h := &harness{db: db, dsn: dsn.Reveal(), options: o, namespace: fmt.Sprintf("%s%d", caseNamespace, cases.next())}
			return h.store()
		},
	})
}

type counter struct {
	mu sync.Mutex
	n  int
}

func (c *counter) next() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n++
	return c.n
}

// harness is one namespace.
type harness struct {
	db        *stdsql.DB
	dsn       string
	options   Options
	namespace string
	calls     sqlfault.Calls
}

func (h *harness) store() *conformance.Store {
	existing := h.options
	existing.Create = false
	return &conformance.Store{
		Open: func(ctx context.Context) (driver.Backend, error) {
			return h.open(ctx, h.namespace, &h.options, new(sqlfault.Wire))
		},
		OpenExisting: func(ctx context.Context) (driver.Backend, error) {
			return h.open(ctx, h.namespace, &existing, new(sqlfault.Wire))
		},
		OpenNamespace: func(ctx context.Context, suffix string) (driver.Backend, error) {
			return h.open(ctx, h.namespace+suffix, &h.options, new(sqlfault.Wire))
		},
		OpenLying: func(ctx context.Context) (driver.Backend, error) {
			return h.open(ctx, h.namespace, &h.options, new(sqlfault.Wire), func(text string) string {
				return strings.Replace(text, " AND version = :seen::bigint", " AND :seen::bigint > 0", 1)
			})
		},
		OpenFaulty: func(ctx context.Context) (driver.Backend, *conformance.Wire, error) {
			w := new(sqlfault.Wire)
			b, err := h.open(ctx, h.namespace, &h.options, w)
			return b, &conformance.Wire{DropRequests: w.DropRequests, DropReplies: w.DropReplies, Hold: w.Hold, Cut: w.Cut}, err
		},
		Calls: func() conformance.Calls {
			return conformance.Calls{Reads: h.calls.Reads.Load(), Writes: h.calls.Writes.Load()}
		},
		Compact: func(ctx context.Context) error {
			return h.exec(ctx, "UPDATE tenure_rosters SET revision = revision + 10000 WHERE namespace = $1")
		},
		Tamper:   h.tamper,
		Wipe:     h.wipe,
		Snapshot: h.snapshot,
	}
}

func (h *harness) open(ctx context.Context, namespace string, o *Options, w *sqlfault.Wire, change ...func(string) string) (driver.Backend, error) {
	opts, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	stmts, err := compile(opts, change...)
	if err != nil {
		return nil, err
	}
	st, err := openStore(ctx, h.dsn, namespace, opts, stmts)
	if err != nil {
		return nil, err
	}
	b, err := sql.New(ctx, config(namespace, opts, &sqlfault.Store{Store: st, Calls: &h.calls, Wire: w}, stmts))
	if err != nil {
		return nil, err
	}
	return b, nil
}

// exec runs statements about this namespace, $1, past the driver.
func (h *harness) exec(ctx context.Context, statements ...string) error {
	tx, err := h.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	for _, s := range statements {
		if _, err := tx.ExecContext(ctx, s, h.namespace); err != nil {
			return errors.Join(err, tx.Rollback())
		}
	}
	return tx.Commit()
}

func (h *harness) tamper(ctx context.Context, what conformance.Tampering, name string) error {
	where := " WHERE namespace = $1 AND shard = '" + name + "'"
	switch what {
	case conformance.CorruptMember:
		return h.exec(ctx, "UPDATE tenure_members SET meta = '{{{', revision = revision + 1 WHERE namespace = $1 AND session = '"+name+"'",
			"UPDATE tenure_rosters SET revision = revision + 1 WHERE namespace = $1")
	case conformance.RewriteShard:
		return h.exec(ctx, "UPDATE tenure_shards SET token = token"+where)
	case conformance.RemoveShard:
		return h.exec(ctx, "DELETE FROM tenure_shards"+where)
	}
	return errors.ErrUnsupported // the columns are typed and bounded
}

// tables are those with rows of a namespace.
var tables = []string{"namespaces", "shards", "items", "entries", "tails", "rosters", "nodes", "members", "beats", "departures"}

func (h *harness) wipe(ctx context.Context) error {
	var statements []string
	for _, t := range tables {
		statements = append(statements, "DELETE FROM tenure_"+t+" WHERE namespace = $1")
	}
	return h.exec(ctx, statements...)
}

// snapshot copies the rows of every table, so that restore brings them back in
// place.
func (h *harness) snapshot(ctx context.Context) (func(context.Context) error, error) {
	copies := fmt.Sprintf("copy_%d_", time.Now().UnixNano())
	var restore []string
	for _, t := range tables {
		create := fmt.Sprintf("CREATE TABLE %s%s AS SELECT * FROM tenure_%s WHERE namespace = '%s'", copies, t, t, h.namespace)
		if _, err := h.db.ExecContext(ctx, create); err != nil {
			return nil, err
		}
		restore = append(restore, "DELETE FROM tenure_"+t+" WHERE namespace = $1",
			"INSERT INTO tenure_"+t+" SELECT * FROM "+copies+t+" WHERE namespace = $1")
	}
	return func(ctx context.Context) error { return h.exec(ctx, restore...) }, nil
}

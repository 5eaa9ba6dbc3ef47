package postgres

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/tenure-go/tenure/backends/sql/internal/dialect"
	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/examine"
)

var _ driver.Examiner = (*Backend)(nil)

// The parameter $1 is the prefix of the table names. The two roles have privileges on columns, so
// such privileges suffice, except for DELETE.
const examination = `SELECT clock_timestamp(), current_user, (SELECT rolsuper FROM pg_roles WHERE rolname = current_user),
  COALESCE((SELECT pg_has_role(relowner, 'USAGE') FROM pg_class WHERE oid = to_regclass($1 || 'shards')), false),
  current_setting('fsync'), current_setting('full_page_writes'), current_setting('synchronous_commit'),
  current_setting('synchronous_standby_names'), ` + policies + `,
  ARRAY(SELECT n.priv || ' on tenure''s table ' || n.name FROM (VALUES
    ('schema', 'SELECT'), ('entries', 'SELECT'), ('namespaces', 'SELECT'), ('namespaces', 'INSERT'), ('namespaces', 'UPDATE'),
    ('shards', 'SELECT'), ('shards', 'INSERT'), ('shards', 'UPDATE'), ('shards', 'DELETE'), ('tails', 'SELECT'), ('tails', 'INSERT'), ('tails', 'UPDATE'),
    ('rosters', 'SELECT'), ('rosters', 'INSERT'), ('rosters', 'UPDATE'),
    ('items', 'SELECT'), ('items', 'INSERT'), ('items', 'UPDATE'), ('items', 'DELETE'),
    ('logs', 'SELECT'), ('logs', 'INSERT'), ('logs', 'DELETE'),
    ('probes', 'SELECT'), ('probes', 'INSERT'), ('probes', 'UPDATE'), ('probes', 'DELETE'),
    ('nodes', 'SELECT'), ('nodes', 'INSERT'), ('nodes', 'UPDATE'), ('nodes', 'DELETE'),
    ('members', 'SELECT'), ('members', 'INSERT'), ('members', 'UPDATE'), ('members', 'DELETE'),
    ('beats', 'SELECT'), ('beats', 'INSERT'), ('beats', 'UPDATE'), ('beats', 'DELETE'),
    ('departures', 'SELECT'), ('departures', 'INSERT'), ('departures', 'DELETE')) AS n (name, priv)
    WHERE NOT CASE n.priv WHEN 'DELETE' THEN has_table_privilege($1 || n.name, n.priv)
      ELSE has_any_column_privilege($1 || n.name, n.priv) END)`

// Examine implements driver.Examiner.
func (b *Backend) Examine(ctx context.Context) ([]driver.Finding, error) {
	ctx, done, err := b.pg.life.Enter(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	conn, err := b.pg.reads.Acquire(ctx)
	if err != nil {
		return nil, dialect.Cause(ctx, fmt.Errorf("tenure: reading: %w", err))
	}
	defer conn.Release()
	var server time.Time
	var x examined
	before := time.Now()
	err = conn.QueryRow(ctx, examination, b.tables).Scan(&server, &x.role, &x.super, &x.owner, &x.fsync, &x.pages,
		&x.synchronous, &x.standbys, &x.hidden, &x.missing)
	if err != nil {
		return nil, dialect.Cause(ctx, fmt.Errorf("tenure: reading settings and rights: %w", err))
	}
	return append(x.findings(), examine.Clock(before, server, time.Now())), nil
}

type examined struct {
	role                                string
	super, owner                        bool
	fsync, pages, synchronous, standbys string
	hidden                              string // names of tables
	missing                             []string
}

func (x *examined) findings() []driver.Finding {
	setting := func(name, value, remedy string, ok bool) driver.Finding {
		if ok {
			remedy = ""
		}
		return driver.Finding{Name: name, Value: value, Remedy: remedy}
	}
	const both = ", and restore from a backup if the machine crashed meanwhile"
	out := []driver.Finding{
		setting("fsync", x.fsync, "a crash of the machine can lose or damage everything: set fsync = on"+both, x.fsync == "on"),
		setting("full_page_writes", x.pages, "a crash of the machine can damage pages: set full_page_writes = on"+both, x.pages == "on"),
		setting("synchronous_commit", x.synchronous, "a crash of the machine can lose acknowledged grants and writes: "+
			"ALTER ROLE ... SET synchronous_commit = on", x.synchronous != "off"),
	}
	if x.standbys != "" && x.synchronous == "local" {
		out = append(out, driver.Finding{Name: "synchronous_standby_names", Value: x.standbys,
			Remedy: "synchronous_commit is local, so a failover to a standby can lose acknowledged writes: set it to on"})
	}
	is := setting("role", x.role, "", true)
	switch {
	case x.super:
		is.Value += ", a superuser"
		is.Remedy = "it may do anything to the server: use the run-time role of docs/backends/postgres.md"
	case x.owner:
		is.Value += ", which owns the tables"
		is.Remedy = "it may change and drop them: use the run-time role of docs/backends/postgres.md"
	}
	out = append(out, is)
	if x.hidden != "" {
		out = append(out, driver.Finding{Name: "row level security", Value: x.hidden, Remedy: policyRemedy})
	}
	if len(x.missing) > 0 {
		out = append(out, driver.Finding{Name: "missing rights", Value: strings.Join(x.missing, ", "),
			Remedy: "grant them as docs/backends/postgres.md has it"})
	}
	return out
}

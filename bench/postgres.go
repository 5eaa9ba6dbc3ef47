package main

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib" // package servers creates databases through database/sql

	"github.com/tenure-go/tenure/backends/sql/postgres"
	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/internal/proof/servers"
)

func postgresStore() *store {
	return &store{
		name: "postgres", title: "PostgreSQL", start: served(servers.Postgres, func(r *running) {
			r.prepare = func(ctx context.Context) error {
				return onPostgres(ctx, r.dsn, func(c *pgx.Conn) error {
					_, err := c.Exec(ctx, leaseTables)
					return err
				})
			}
			r.version = func(ctx context.Context) (version string, err error) {
				return version, onPostgres(ctx, r.dsn, func(c *pgx.Conn) error {
					return c.QueryRow(ctx, "SELECT split_part(current_setting('server_version'), ' ', 1)").Scan(&version)
				})
			}
			r.calls = func(ctx context.Context) (n int64, err error) {
				return n, onPostgres(ctx, r.dsn, func(c *pgx.Conn) error {
					return c.QueryRow(ctx, `SELECT xact_commit + xact_rollback FROM pg_stat_database
WHERE datname = current_database()`).Scan(&n)
				})
			}
		}),
		contenders: []contender{
			tenure(time.Second, func(ctx context.Context, at place) (core.Backend, error) {
				return postgres.Open(ctx, at.DSN, at.Namespace, &postgres.Options{Create: true, Migrate: true})
			}),
			{name: "lease row", ttl: time.Second, waits: 10_000, join: joinLeaseRow},
			{name: "advisory locks", waits: 10_000, join: joinAdvisory},
		},
	}
}

func onPostgres(ctx context.Context, dsn string, do func(*pgx.Conn) error) error {
	c, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return err
	}
	return errors.Join(do(c), c.Close(context.WithoutCancel(ctx)))
}

const leaseTables = `
CREATE TABLE lease (namespace text, name text, holder text, token bigint, expires timestamptz,
	PRIMARY KEY (namespace, name));
CREATE TABLE written (namespace text, name text, body bytea)`

// The pool has a connection for each goroutine that takes locks.
func leasePool(ctx context.Context, dsn string) (*pgxpool.Pool, error) {
	c, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, err
	}
	c.MaxConns = atOnce
	return pgxpool.NewWithConfig(ctx, c)
}

// joinLeaseRow creates a member that uses a lease row for each shard, as many applications do. A
// holder renews all of its rows with one statement, and other members claim expired rows with one
// statement.
func joinLeaseRow(ctx context.Context, at place) (member, error) {
	pool, err := leasePool(ctx, at.DSN)
	if err != nil {
		return nil, err
	}
	p := &polled{at: at, leave: pool.Close}
	p.take = func(ctx context.Context, wanted []string) ([]grant, error) {
		rows, err := pool.Query(ctx, `INSERT INTO lease
SELECT $1, n, $2, 1, now() + $4 FROM unnest($3::text[]) n
WHERE NOT EXISTS (SELECT FROM lease l WHERE l.namespace = $1 AND l.name = n AND l.expires >= now())
ON CONFLICT (namespace, name) DO UPDATE SET holder = $2, token = lease.token + 1, expires = now() + $4
WHERE lease.expires < now() RETURNING name, token`, at.Namespace, at.Node, wanted, at.TTL)
		if err != nil {
			return nil, err
		}
		return pgx.CollectRows(rows, func(row pgx.CollectableRow) (g grant, err error) {
			var token int64
			err = row.Scan(&g.shard, &token)
			g.write = func(ctx context.Context) error {
				return one(pool.Exec(ctx, `WITH l AS (SELECT FROM lease
WHERE namespace = $1 AND name = $2 AND holder = $3 AND token = $4 FOR SHARE)
INSERT INTO written SELECT $1, $2, $5 FROM l`, at.Namespace, g.shard, at.Node, token, body()))
			}
			return g, err
		})
	}
	p.keep = func(ctx context.Context, held []string) error {
		_, err := pool.Exec(ctx, "UPDATE lease SET expires = now() + $4 WHERE namespace = $1 AND holder = $2 AND "+
			"name = ANY($3)", at.Namespace, at.Node, held, at.TTL)
		return err
	}
	p.give = func(ctx context.Context, shard string) error {
		return one(pool.Exec(ctx, "UPDATE lease SET expires = '-infinity' WHERE namespace = $1 AND holder = $2 AND "+
			"name = $3", at.Namespace, at.Node, shard))
	}
	p.once = func(ctx context.Context, name string) (unlock func(context.Context) error, err error) {
		unlock = func(ctx context.Context) error { return p.give(ctx, name) }
		for {
			tag, err := pool.Exec(ctx, `INSERT INTO lease VALUES ($1, $3, $2, 1, now() + $4)
ON CONFLICT (namespace, name) DO UPDATE SET holder = $2, token = lease.token + 1, expires = now() + $4
WHERE lease.expires < now()`, at.Namespace, at.Node, name, at.TTL)
			if err != nil || tag.RowsAffected() == 1 {
				return unlock, err
			}
			if err := pause(ctx, at.TTL/pollsPerTTL); err != nil {
				return nil, err
			}
		}
	}
	p.start()
	return p, nil
}

// joinAdvisory creates a member that holds advisory locks on one connection. When that connection
// ends, the server releases the locks. The member polls for locks that other members hold. It waits
// for brief locks on a connection from the pool.
func joinAdvisory(ctx context.Context, at place) (member, error) {
	pool, err := leasePool(ctx, at.DSN)
	if err != nil {
		return nil, err
	}
	c, err := pgx.Connect(ctx, at.DSN)
	if err != nil {
		pool.Close()
		return nil, err
	}
	using := make(chan *pgx.Conn, 1) // used by one goroutine at a time
	using <- c
	on := func(do func() error) error {
		c := <-using
		defer func() { using <- c }()
		return do()
	}
	p := &polled{at: at, leave: func() { _ = on(func() error { return c.Close(context.Background()) }); pool.Close() }}
	p.take = func(ctx context.Context, wanted []string) (grants []grant, err error) {
		return grants, on(func() error {
			rows, err := c.Query(ctx, "SELECT n FROM unnest($2::text[]) n WHERE "+
				"pg_try_advisory_lock(hashtextextended($1 || '/' || n, 0))", at.Namespace, wanted)
			if err != nil {
				return err
			}
			grants, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (g grant, err error) {
				err = row.Scan(&g.shard)
				g.write = func(ctx context.Context) error { // it has no fence
					return one(pool.Exec(ctx, "INSERT INTO written VALUES ($1, $2, $3)", at.Namespace, g.shard, body()))
				}
				return g, err
			})
			return err
		})
	}
	p.keep = func(ctx context.Context, _ []string) error {
		return on(func() error { return c.Ping(ctx) })
	}
	p.give = func(ctx context.Context, shard string) error {
		return on(func() error {
			_, err := c.Exec(ctx, "SELECT pg_advisory_unlock(hashtextextended($1 || '/' || $2, 0))", at.Namespace, shard)
			return err
		})
	}
	p.once = func(ctx context.Context, name string) (unlock func(context.Context) error, err error) {
		c, err := pool.Acquire(ctx)
		if err != nil {
			return nil, err
		}
		if _, err := c.Exec(ctx, "SELECT pg_advisory_lock(hashtextextended($1 || '/' || $2, 0))", at.Namespace, name); err != nil {
			c.Release()
			return nil, err
		}
		return func(ctx context.Context) error {
			defer c.Release()
			_, err := c.Exec(ctx, "SELECT pg_advisory_unlock(hashtextextended($1 || '/' || $2, 0))", at.Namespace, name)
			return err
		}, nil
	}
	p.start()
	return p, nil
}

package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	_ "github.com/go-sql-driver/mysql" // package servers creates databases through database/sql
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tenure-go/tenure/backends/sql/mysql"
	"github.com/tenure-go/tenure/backends/sql/sqlite"
	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/internal/proof/servers"
)

// A statement must have written exactly one row.
func one(tag pgconn.CommandTag, err error) error {
	if err == nil && tag.RowsAffected() != 1 {
		err = fmt.Errorf("it wrote %d rows, want 1: the lease is lost", tag.RowsAffected())
	}
	return err
}

func mariadbStore() *store {
	return &store{
		name: "mariadb", title: "MariaDB", start: served(servers.MariaDB, func(r *running) {
			r.version = func(ctx context.Context) (string, error) {
				v, err := queryText(ctx, "mysql", r.dsn, "SELECT '', SUBSTRING_INDEX(VERSION(), '-', 1)")
				return v, err
			}
			r.calls = func(ctx context.Context) (n int64, err error) {
				text, err := queryText(ctx, "mysql", r.dsn, "SHOW GLOBAL STATUS LIKE 'Questions'")
				if err == nil {
					_, err = fmt.Sscan(text, &n)
				}
				return n, err
			}
		}),
		contenders: []contender{
			tenure(time.Second, func(ctx context.Context, at place) (core.Backend, error) {
				return mysql.Open(ctx, at.DSN, at.Namespace, &mysql.Options{Create: true, Migrate: true})
			}),
		},
	}
}

// queryText returns the second column of a statement's only row.
func queryText(ctx context.Context, driver, dsn, statement string) (text string, err error) {
	db, err := sql.Open(driver, dsn)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	var first string
	return text, db.QueryRowContext(ctx, statement).Scan(&first, &text)
}

func sqliteStore() *store {
	return &store{
		name: "sqlite", title: "SQLite", start: func(context.Context) (*running, error) {
			dir, err := os.MkdirTemp("", "tenure-bench-")
			if err != nil {
				return nil, err
			}
			r := &running{dsn: filepath.Join(dir, "bench.db")}
			r.closers = append(r.closers, func() error { return os.RemoveAll(dir) })
			r.version = func(ctx context.Context) (string, error) {
				return queryText(ctx, "sqlite", filepath.Join(dir, "version.db"), "SELECT '', sqlite_version()")
			}
			return r, nil
		},
		contenders: []contender{
			tenure(time.Second, func(ctx context.Context, at place) (core.Backend, error) {
				return sqlite.Open(ctx, at.DSN, at.Namespace, nil)
			}),
		},
	}
}

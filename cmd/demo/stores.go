package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	mysqldriver "github.com/go-sql-driver/mysql"

	"github.com/tenure-go/tenure/backends/consul"
	"github.com/tenure-go/tenure/backends/etcd"
	"github.com/tenure-go/tenure/backends/redis"
	"github.com/tenure-go/tenure/backends/sql/mysql"
	"github.com/tenure-go/tenure/backends/sql/postgres"
	"github.com/tenure-go/tenure/backends/sql/sqlite"
	"github.com/tenure-go/tenure/backends/zookeeper"
	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/internal/proof/servers"
)

// A store is a backend that the demonstration can use.
type store struct {
	opener core.Opener
	minTTL time.Duration // its smallest TTL, if that is known before it is opened
	// check, if not nil, refuses a text that cannot be the store's place. Its error does not quote
	// the place, which may contain a password.
	check func(dsn string) error
	// temporary returns a place of the store inside a directory. It is nil for a server.
	temporary func(dir string) string
	// server is the server to start if no place is given. It is nil for a store without a
	// server.
	server *serverKind
	// migrate, if not nil, makes the tables in a separate step before opening.
	migrate func(ctx context.Context, dsn string) error
	// options returns the opener's settings.
	options func(dsn, namespace string, create bool) map[string]any
	// limit limits the opening and probing. late is the advice after that limit.
	limit time.Duration
	late  string
	// files returns the files that opening a place may create. It is nil for a server.
	files func(dsn string) []string
	// look returns a command that shows a namespace's logs. It is nil for a server, which is
	// never kept.
	look func(dsn, namespace string) string
}

// stores returns the values of -backend. The first is the default.
func stores() []store {
	return []store{
		{
			opener:    sqlite.Opener(),
			minTTL:    250 * time.Millisecond,
			check:     checkPath,
			temporary: func(dir string) string { return filepath.Join(dir, "board.db") },
			options: func(dsn, namespace string, create bool) map[string]any {
				return map[string]any{"path": dsn, "namespace": namespace, "create": create}
			},
			limit: 5 * time.Second,
			late:  "another process may hold its write lock; end that, or name another database with -dsn",
			files: sqliteFiles,
			look: func(dsn, namespace string) string {
				return fmt.Sprintf(`sqlite3 %q "SELECT shard, seq, token, CAST(payload AS TEXT) FROM tenure_entries WHERE namespace = '%s' ORDER BY shard, seq LIMIT 20"`, dsn, namespace)
			},
		},
		{
			opener:  postgres.Opener(),
			minTTL:  500 * time.Millisecond,
			server:  &serverKind{kind: servers.Postgres, install: "PostgreSQL 15 or later (on Debian: apt-get install postgresql)"},
			migrate: func(ctx context.Context, dsn string) error { return postgres.Migrate(ctx, dsn, nil) },
			options: serverOptions,
			limit:   serverLimit,
			late:    serverLate,
		},
		{
			opener: mysql.Opener(),
			minTTL: 500 * time.Millisecond,
			check:  checkMySQL,
			server: &serverKind{kind: servers.MariaDB,
				install: "MariaDB 10.6 or later (on Debian: apt-get install mariadb-server)"},
			migrate: func(ctx context.Context, dsn string) error { return mysql.Migrate(ctx, dsn, nil) },
			options: serverOptions,
			limit:   serverLimit,
			late:    serverLate,
		},
		{
			opener: etcd.Opener(),
			minTTL: 500 * time.Millisecond,
			check:  checkEndpoints,
			server: &serverKind{kind: servers.Etcd, members: 3,
				install: "etcd 3.7 (make servers builds it; or apt-get install etcd-server, where that is new enough)"},
			options: func(dsn, namespace string, create bool) map[string]any {
				return map[string]any{"endpoints": strings.Split(dsn, ","), "namespace": namespace, "create": create}
			},
			limit: serverLimit,
			late:  "check that a majority of the members runs and answers",
		},
		{
			opener: zookeeper.Opener(),
			minTTL: 500 * time.Millisecond,
			check:  checkEndpoints,
			server: &serverKind{kind: servers.ZooKeeper, members: 1,
				install: "Java and ZooKeeper 3.8 (on Debian: apt-get install default-jre-headless libzookeeper-java)"},
			options: func(dsn, namespace string, create bool) map[string]any {
				return map[string]any{"servers": strings.Split(dsn, ","), "namespace": namespace, "create": create}
			},
			limit: serverLimit,
			late:  "check that a majority of the servers runs and answers",
		},
		{
			opener: consul.Opener(),
			minTTL: 500 * time.Millisecond,
			check:  checkEndpoints,
			server: &serverKind{kind: servers.Consul, members: 1, install: "Consul 1.14 or later (make servers builds it)"},
			options: func(dsn, namespace string, create bool) map[string]any {
				return map[string]any{"address": dsn, "namespace": namespace, "create": create}
			},
			limit: serverLimit,
			late:  "check that the agent runs and its servers have a leader",
		},
		redisStore(),
	}
}

func redisStore() store {
	return store{
		opener: redis.Opener(),
		minTTL: 500 * time.Millisecond,
		check:  checkEndpoints,
		server: &serverKind{kind: servers.Redis, members: 1,
			install: "Redis 7.0 or later (on Debian: apt-get install redis-server)"},
		options: func(dsn, namespace string, create bool) map[string]any {
			return map[string]any{"addrs": strings.Split(dsn, ","), "namespace": namespace, "create": create}
		},
		limit: serverLimit,
		late:  "check that the server runs and answers",
	}
}

func sqliteFiles(dsn string) []string {
	var out []string
	out = append(out, dsn+"-hints")
	for _, file := range []string{dsn, dsn + "-members"} {
		out = append(out, file, file+"-wal", file+"-shm", file+"-journal", file+"-tenure_transactions")
	}
	return out
}

const (
	serverLimit = 15 * time.Second
	serverLate  = "check that the server runs and answers, and that nothing locks its tables"
)

func serverOptions(dsn, namespace string, create bool) map[string]any {
	return map[string]any{"dsn": dsn, "namespace": namespace, "create": create}
}

// checkPath refuses the address of a server as a path, because later errors would show its
// password.
func checkPath(dsn string) error {
	if strings.Contains(dsn, "://") || strings.Contains(dsn, "@tcp(") || strings.Contains(dsn, "@unix(") ||
		strings.Contains(dsn, "password=") {
		return errors.New("-dsn looks like a server's, and for sqlite it is the path of a database: choose the " +
			"server with -backend postgres or -backend mysql")
	}
	return nil
}

// checkEndpoints refuses a text that cannot be a list of addresses.
func checkEndpoints(dsn string) error {
	if dsn == "" || strings.ContainsAny(dsn, "@ ?") {
		return errors.New("-dsn is not understood: write it as https://host:port,https://host:port, or host:port on " +
			"this machine; a store that asks for a password is not for the demonstration")
	}
	return nil
}

// checkMySQL refuses a DSN whose password may be mistaken for the database, which errors show.
func checkMySQL(dsn string) error {
	c, err := mysqldriver.ParseDSN(dsn)
	if err != nil || c.DBName == "" || strings.ContainsAny(c.DBName, "@:()") {
		return errors.New("-dsn is not understood: write it as user:password@tcp(host:port)/database?tls=true")
	}
	return nil
}

// open opens a namespace of the store at dsn.
func (s store) open(ctx context.Context, dsn, namespace string, create bool) (core.Backend, error) {
	text, err := json.Marshal(s.options(dsn, namespace, create))
	if err != nil {
		return nil, fmt.Errorf("demo: options of %s: %w", s.opener.Name, err)
	}
	return s.opener.Open(ctx, func(into any) error {
		d := json.NewDecoder(bytes.NewReader(text))
		d.DisallowUnknownFields()
		return d.Decode(into)
	})
}

// runName returns a random last part of a run's namespace, so that a run never meets the logs of
// another.
func runName() string {
	var b [6]byte
	rand.Read(b[:])
	return "run-" + hex.EncodeToString(b[:])
}

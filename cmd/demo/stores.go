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
	minTTL time.Duration // the smallest TTL, if known before the store is opened
	// An invalid DSN may contain a password, so the check's error must not quote it.
	check func(dsn string) error
	// A temporary database is inside the given directory. For a server, this field is nil.
	temporary func(dir string) string
	// The run starts this server if no DSN is given. For a store without a server, this field is
	// nil.
	server *serverKind
	// Some stores need a separate step that creates the tables before the run opens the store.
	migrate func(ctx context.Context, dsn string) error
	options func(dsn, namespace string, create bool) map[string]any
	// Opening and probing the store must not exceed the limit. The late field contains advice for a
	// slower store.
	limit time.Duration
	late  string
	// Opening the store may create these files. For a server, this field is nil.
	files func(dsn string) []string
	// The command shows a namespace's logs. For a server, this field is nil, because the run never
	// keeps a server.
	look func(dsn, namespace string) string
}

// These stores are the choices for -backend. The first one is the default.
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

// checkPath rejects a path that looks like a server address, because later errors would show the
// password in it.
func checkPath(dsn string) error {
	if strings.Contains(dsn, "://") || strings.Contains(dsn, "@tcp(") || strings.Contains(dsn, "@unix(") ||
		strings.Contains(dsn, "password=") {
		return errors.New("-dsn looks like a server's, and for sqlite it is the path of a database: choose the " +
			"server with -backend postgres or -backend mysql")
	}
	return nil
}

// checkEndpoints rejects a string that cannot be a list of addresses.
func checkEndpoints(dsn string) error {
	if dsn == "" || strings.ContainsAny(dsn, "@ ?") {
		return errors.New("-dsn is not understood: write it as https://host:port,https://host:port, or host:port on " +
			"this machine; a store that asks for a password is not for the demonstration")
	}
	return nil
}

// checkMySQL rejects a DSN whose password could be mistaken for the database name, which errors
// show.
func checkMySQL(dsn string) error {
	c, err := mysqldriver.ParseDSN(dsn)
	if err != nil || c.DBName == "" || strings.ContainsAny(c.DBName, "@:()") {
		return errors.New("-dsn is not understood: write it as user:password@tcp(host:port)/database?tls=true")
	}
	return nil
}

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

// runName returns a random suffix for a run's namespace, so that a run does not find another run's
// logs.
func runName() string {
	var b [6]byte
	rand.Read(b[:])
	return "run-" + hex.EncodeToString(b[:])
}

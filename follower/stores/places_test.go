package stores_test

import (
	"context"
	"path/filepath"
	"testing"

	_ "github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"
	goredis "github.com/redis/go-redis/v9"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/tenure-go/tenure/backends/consul"
	"github.com/tenure-go/tenure/backends/etcd"
	"github.com/tenure-go/tenure/backends/memory"
	"github.com/tenure-go/tenure/backends/redis"
	"github.com/tenure-go/tenure/backends/sql/mysql"
	"github.com/tenure-go/tenure/backends/sql/postgres"
	"github.com/tenure-go/tenure/backends/sql/sqlite"
	"github.com/tenure-go/tenure/backends/zookeeper"
	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/proof/servers"
)

// place is a kind of store that a test follows.
type place struct {
	name   string
	server bool // starts a server
	many   bool // follows -entries entries instead of a tenth
	pushed bool // the test limits the lag
	open   func(t testing.TB) func() driver.Backend
}

func places() []place {
	return []place{
		{name: "memory", pushed: true, open: func(t testing.TB) func() driver.Backend {
			store := memory.New()
			return opens(t, func(ctx context.Context) (driver.Backend, error) {
				return memory.Open(ctx, store, "app", nil)
			})
		}},
		{name: "sqlite", many: true, open: func(t testing.TB) func() driver.Backend {
			path := filepath.Join(t.TempDir(), "log.db")
			return opens(t, func(ctx context.Context) (driver.Backend, error) {
				return sqlite.Open(ctx, path, "app", nil)
			})
		}},
		{name: "postgres", server: true, many: true, pushed: true, open: func(t testing.TB) func() driver.Backend {
			dsn := pool.Get(t, servers.Postgres, nil).Database(t)
			return opens(t, func(ctx context.Context) (driver.Backend, error) {
				return postgres.Open(ctx, dsn.Reveal(), "app", &postgres.Options{Create: true, Migrate: true})
			})
		}},
		{name: "mysql", server: true, open: func(t testing.TB) func() driver.Backend {
			dsn := pool.Get(t, servers.MariaDB, nil).Database(t)
			return opens(t, func(ctx context.Context) (driver.Backend, error) {
				return mysql.Open(ctx, dsn.Reveal(), "app", &mysql.Options{Create: true, Migrate: true})
			})
		}},
		{name: "etcd", server: true, pushed: true, open: func(t testing.TB) func() driver.Backend {
			c := clientv3.Config{Endpoints: []string{pool.Get(t, servers.Etcd, nil).Addr()}, Logger: zap.NewNop()}
			return opens(t, func(ctx context.Context) (driver.Backend, error) {
				return etcd.Open(ctx, c, t.Name(), &etcd.Options{Create: true})
			})
		}},
		{name: "consul", server: true, open: func(t testing.TB) func() driver.Backend {
			c := consul.Config{Address: pool.Get(t, servers.Consul, nil).Addr()}
			return opens(t, func(ctx context.Context) (driver.Backend, error) {
				return consul.Open(ctx, c, t.Name(), &consul.Options{Create: true})
			})
		}},
		{name: "zookeeper", server: true, open: func(t testing.TB) func() driver.Backend {
			addrs := []string{pool.Get(t, servers.ZooKeeper, nil).Addr()}
			return opens(t, func(ctx context.Context) (driver.Backend, error) {
				return zookeeper.Open(ctx, addrs, t.Name(), &zookeeper.Options{Create: true})
			})
		}},
		{name: "redis", server: true, pushed: true, open: func(t testing.TB) func() driver.Backend {
			c := &goredis.UniversalOptions{Addrs: []string{pool.Get(t, servers.Redis, nil).Addr()}}
			return opens(t, func(ctx context.Context) (driver.Backend, error) {
				return redis.Open(ctx, c, t.Name(), &redis.Options{Create: true})
			})
		}},
	}
}

// opens returns a function that opens the store as another process would.
func opens(t testing.TB, open func(ctx context.Context) (driver.Backend, error)) func() driver.Backend {
	return func() driver.Backend {
		t.Helper()
		b, err := open(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { b.Close() })
		return b
	}
}

// on runs a test on each embedded store and, with -all, on each store that needs a server.
func on(t *testing.T, test func(t *testing.T, p place)) {
	for _, p := range places() {
		if *all || !p.server {
			t.Run(p.name, func(t *testing.T) { test(t, p) })
		}
	}
}

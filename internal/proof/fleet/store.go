// Package fleet supports tests on real stores. It lists the stores, starts processes that use a
// store, and kills, stops or cuts off these processes.
package fleet

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/tenure-go/tenure/backends/consul"
	"github.com/tenure-go/tenure/backends/etcd"
	"github.com/tenure-go/tenure/backends/redis"
	"github.com/tenure-go/tenure/backends/sql/mysql"
	"github.com/tenure-go/tenure/backends/sql/postgres"
	"github.com/tenure-go/tenure/backends/sql/sqlite"
	"github.com/tenure-go/tenure/backends/zookeeper"
	"github.com/tenure-go/tenure/config"
	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/internal/proof/servers"
)

// Openers returns the openers for the stores in Places.
func Openers() []core.Opener {
	return []core.Opener{sqlite.Opener(), postgres.Opener(), mysql.Opener(), etcd.Opener(), consul.Opener(), zookeeper.Opener(),
		redis.Opener()}
}

// Place is a kind of store.
type Place struct {
	Name     string
	kind     servers.Kind // empty for a file
	database bool         // reached through a DSN
	format   string       // a backend's part of a configuration, for its address and the namespace
}

// Places returns the kinds of stores. The first kind needs no server.
func Places() []Place {
	return []Place{
		{Name: "sqlite", format: "sqlite: {path: %q, namespace: %q}"},
		{"postgres", servers.Postgres, true, "postgres: {dsn: %q, namespace: %q, create: true, migrate: true}"},
		{"mysql", servers.MariaDB, true, "mysql: {dsn: %q, namespace: %q, create: true, migrate: true}"},
		{"etcd", servers.Etcd, false, "etcd: {endpoints: [%q], namespace: %q, create: true}"},
		{"consul", servers.Consul, false, "consul: {address: %q, namespace: %q, create: true}"},
		{"zookeeper", servers.ZooKeeper, false, "zookeeper: {servers: [%q], namespace: %q, create: true}"},
		{"redis", servers.Redis, false, "redis: {addrs: [%q], namespace: %q, create: true}"},
	}
}

// Store is an empty store on a separate server.
type Store struct {
	Server *servers.Server // nil for a file

	format string
	at     func(addr string) string
}

// New creates a store that lasts until the test ends. New skips the test with -short, or if the
// machine has no such server.
func (p Place) New(t *testing.T) *Store {
	t.Helper()
	servers.Short(t)
	s := &Store{format: p.format}
	if p.kind == "" {
		path := filepath.Join(t.TempDir(), "t.db")
		s.at = func(string) string { return path }
		return s
	}
	s.Server = servers.New(t, p.kind, nil)
	if !p.database {
		s.at = func(addr string) string { return addr }
		return s
	}
	dsn := s.Server.Database(t)
	s.at = func(addr string) string { return dsn.At(addr).Reveal() }
	return s
}

// Part returns the part of a configuration that describes the backend. The backend connects to
// addr, which may be a proxy's address, or to the server's address if addr is empty.
func (s *Store) Part(addr, namespace string) string {
	if addr == "" && s.Server != nil {
		addr = s.Server.Addr()
	}
	return fmt.Sprintf(s.format, s.at(addr), namespace)
}

// Open opens the store in this process, until the test ends.
func (s *Store) Open(t *testing.T, namespace string) core.Backend {
	t.Helper()
	c, err := config.Load(&config.LoadOptions{Path: "judge", Data: []byte(configOf("judge", s.Part("", namespace)))})
	if err != nil {
		t.Fatal(err)
	}
	b, err := c.Open(t.Context(), Openers()...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	return b
}

// configOf returns the configuration for a process.
func configOf(node, part string) string {
	return fmt.Sprintf("tenure:\n  node: %s\n  ttl: 1s\n  lock_dir: none\n  open_wait: 30s\n  drain_budget: 8s\n  backends:\n    %s\n",
		node, part)
}

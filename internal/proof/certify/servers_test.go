package certify

import (
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tenure-go/tenure/backends/consul"
	"github.com/tenure-go/tenure/backends/etcd"
	"github.com/tenure-go/tenure/backends/redis"
	"github.com/tenure-go/tenure/backends/sql/mysql"
	"github.com/tenure-go/tenure/backends/sql/postgres"
	"github.com/tenure-go/tenure/backends/zookeeper"
	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/proof/servers"
)

// onServer returns the settings for a server that this test starts.
func onServer(t *testing.T, backend string) (driver.Opener, any) {
	t.Helper()
	server := func(kind servers.Kind) *servers.Server { return pool.Get(t, kind, nil) }
	const ns = "team/orders"
	switch backend {
	case "postgres":
		dsn := server(servers.Postgres).Database(t).Reveal()
		return postgres.Opener(), postgres.Settings{DSN: driver.Secret(dsn), Namespace: ns,
			Options: postgres.Options{TablePrefix: "mine_", Migrate: true}}
	case "mysql":
		dsn := server(servers.MariaDB).Database(t).Reveal()
		return mysql.Opener(), mysql.Settings{DSN: driver.Secret(dsn), Namespace: ns, Options: mysql.Options{TablePrefix: "mine_", Migrate: true}}
	case "etcd":
		return etcd.Opener(), etcd.Settings{Endpoints: []string{server(servers.Etcd).Addr()}, Namespace: ns}
	case "consul":
		return consul.Opener(), consul.Settings{Config: consul.Config{Address: server(servers.Consul).Addr()}, Namespace: ns}
	case "zookeeper":
		return zookeeper.Opener(), zookeeper.Settings{Servers: []string{server(servers.ZooKeeper).Addr()}, Namespace: ns}
	default:
		return redis.Opener(), redis.Settings{Addrs: []string{server(servers.Redis).Addr()}, Namespace: ns}
	}
}

// TestServed: a run removes its records, and uses the store that its settings name.
func TestServed(t *testing.T) {
	t.Parallel()
	turns := make(chan struct{}, 2) // because the phases count events within a period
	for backend, left := range map[string]string{"postgres": "the tables", "mysql": "the tables", "etcd": "nothing",
		"consul": "nothing", "redis": "nothing", "zookeeper": "the root, and in it an empty node"} {
		t.Run(backend, func(t *testing.T) {
			t.Parallel()
			turns <- struct{}{}
			defer func() { <-turns }()
			opener, settings := onServer(t, backend)
			o := quick(opener, settings)
			o.Only, o.Seeds, o.ControlSeeds, o.Steps, o.TTL = nil, 1, 1, 4, 2*time.Second // a busy machine ends shorter leases before a write
			makeNamespace(t, o)
			b, err := settingsOf(settings).in("team/orders", false).open(t.Context(), opener)
			if err != nil {
				t.Fatal(err)
			}
			defer b.Close()
			r := certify(t, o)
			for r.Verdict == Nothing && o.Steps < 100 { // a busy machine did too little, so it runs longer, as the report advises
				t.Logf("%d steps: %q", o.Steps, r.Why)
				o.Steps *= 3
				r = certify(t, o)
			}
			if r.Verdict != Held {
				t.Errorf("got %s because of %q: %+v", r.Verdict, r.Why, r.Findings)
			}
			counted(t, r, "3 passed, 0 failed")
			if !regexp.MustCompile(`^[1-9][0-9]* (rows|records) of ([6-9]|10) namespaces$`).MatchString(r.Removed) || !strings.HasPrefix(r.Left, left) {
				t.Errorf("got removed %q, left %q", r.Removed, r.Left)
			}
			if r.Control == nil || r.Control.Damage == 0 || r.System == nil || r.System.Late == 0 {
				t.Errorf("got the control %+v, and %+v", r.Control, r.System)
			}
			if backend != "zookeeper" && r.Store.Version == "" {
				t.Errorf("the version is not known: %+v", r.Skipped)
			}
			if s := settingsOf(settings); s.text("dsn", "") != "" {
				text, err := r.JSON()
				if err != nil || strings.Contains(string(text)+string(r.Markdown()), s.text("dsn", "")) {
					t.Errorf("%v, or the report has the data source name", err)
				}
			}
			// The team's own namespace is unchanged.
			if _, err := b.Observe(t.Context(), driver.ObserveQuery{}); err != nil {
				t.Errorf("the namespace %s: %v", b.Info().Namespace, err)
			}
		})
	}
}

// TestDoors: the cases use two nodes of a Galera cluster, and the report lists the cases that used
// only one node.
func TestDoors(t *testing.T) {
	t.Parallel()
	servers.Short(t, servers.Galera)
	members := servers.NewCluster(t, servers.Galera, 2, &servers.Options{NoSync: true}).Members()
	dsn := members[0].Database(t)
	settings := mysql.Settings{DSN: driver.Secret(dsn.Reveal()), Namespace: "team/orders", Options: mysql.Options{Migrate: true}}
	for _, doors := range [][]string{{members[1].Addr()}, nil} {
		o := quick(mysql.Opener(), settings)
		o.Doors, o.Only = doors, []Phase{Conformance}
		o.Cases = regexp.MustCompile("^Acquire/(Exclusive|ClaimRacesEvict)$|^Commit/FencedAfterTakeover$")
		makeNamespace(t, o)
		r := certify(t, o)
		if r.Verdict != Held {
			t.Errorf("got %s because of %q: %+v", r.Verdict, r.Why, r.Findings)
		}
		counted(t, r, "3 passed, 0 failed")
		if said := slices.ContainsFunc(r.Skipped, func(s Skip) bool { return strings.Contains(s.What, "two doors") }); said != (doors == nil) {
			t.Errorf("through %q: skipped %+v", doors, r.Skipped)
		}
	}
}

package tenurefx_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	_ "github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"
	"go.uber.org/fx"

	"github.com/tenure-go/tenure/backends/consul"
	"github.com/tenure-go/tenure/backends/etcd"
	"github.com/tenure-go/tenure/backends/sql/mysql"
	"github.com/tenure-go/tenure/backends/sql/postgres"
	"github.com/tenure-go/tenure/backends/sql/sqlite"
	"github.com/tenure-go/tenure/backends/zookeeper"
	"github.com/tenure-go/tenure/conformance/servers"
	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/tenurefx"
)

var rounds = flag.Int("rounds", 5, "how often the application is stopped under load on each backend")

// pool holds the servers that the tests share.
var pool servers.Pool

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(pool.Run(m))
}

// stores are the backends' parts of the configuration, by name.
func stores() map[string]func(t *testing.T) string {
	start := func(t *testing.T, kind servers.Kind) *servers.Server { return pool.Get(t, kind, nil) }
	return map[string]func(t *testing.T) string{
		"sqlite": func(t *testing.T) string {
			return fmt.Sprintf("{namespace: stop, path: %q}", filepath.Join(t.TempDir(), "stop.db"))
		},
		"postgres": func(t *testing.T) string {
			return fmt.Sprintf("{namespace: stop, create: true, migrate: true, dsn: %q}", start(t, servers.Postgres).Database(t).Reveal())
		},
		"mysql": func(t *testing.T) string {
			return fmt.Sprintf("{namespace: stop, create: true, migrate: true, dsn: %q}", start(t, servers.MariaDB).Database(t).Reveal())
		},
		"etcd": func(t *testing.T) string {
			return fmt.Sprintf("{namespace: stop, create: true, endpoints: [%q]}", "http://"+start(t, servers.Etcd).Addr())
		},
		"consul": func(t *testing.T) string {
			return fmt.Sprintf("{namespace: stop, create: true, address: %q}", start(t, servers.Consul).Addr())
		},
		"zookeeper": func(t *testing.T) string {
			return fmt.Sprintf("{namespace: stop, create: true, servers: [%q]}", start(t, servers.ZooKeeper).Addr())
		},
	}
}

// member is one run of the application: while it leads, four goroutines append.
type member struct {
	app     *fx.App
	elector *core.Elector
	leads   chan struct{} // closed by its first accepted entry
	wrote   time.Time     // when that was; after leads
	joined  atomic.Bool
}

// TestShutdownUnderLoad stops the leader's application again and again while it
// writes: its work is joined before its lease is given back, the standby goes on
// within a handover, nothing is lost or doubled, and nothing is left behind.
func TestShutdownUnderLoad(t *testing.T) {
	for name, part := range stores() {
		t.Run(name, func(t *testing.T) {
			text := "tenure: {ttl: 30s, backends: {" + name + ": " + part(t) + "}}"
			noLeaks(t)
			var leading atomic.Int32
			var accepted atomic.Int64
			start := func(node string) *member {
				c := conf(t, text)
				o := c.Options()
				o.Node = node
				m := &member{leads: make(chan struct{})}
				var first sync.Once
				m.app = fx.New(fx.NopLogger, fx.StopTimeout(ample), fx.Supply(c, o),
					tenurefx.Backends(sqlite.Opener, postgres.Opener, mysql.Opener, etcd.Opener, consul.Opener, zookeeper.Opener),
					tenurefx.Module(), fx.Populate(&m.elector),
					fx.Provide(tenurefx.AsElection(func() tenurefx.Election {
						return tenurefx.Election{Shards: []string{"only"}, Handler: func(ctx context.Context, l *core.Lease) error {
							if leading.Add(1) != 1 {
								t.Error("two lead")
							}
							defer leading.Add(-1)
							var writers sync.WaitGroup
							for range 4 {
								writers.Go(func() {
									for ctx.Err() == nil {
										_, err := l.Append(l.Context(), []byte("x"))
										if err != nil {
											t.Errorf("%s: %v", node, err)
											return
										}
										accepted.Add(1)
										first.Do(func() {
											m.wrote = time.Now()
											close(m.leads)
										})
									}
								})
							}
							writers.Wait()
							m.joined.Store(true)
							return nil
						}}
					})))
				if err := m.app.Err(); err != nil {
					t.Fatal(err)
				}
				if err := m.app.Start(t.Context()); err != nil {
					t.Fatal(err)
				}
				return m
			}
			stop := func(m *member) {
				t.Helper()
				ctx, cancel := context.WithTimeout(t.Context(), ample)
				defer cancel()
				if err := m.app.Stop(ctx); err != nil {
					t.Fatal(err)
				}
				if !m.joined.Load() {
					t.Fatal("stopped before the work was joined")
				}
			}
			var took []time.Duration
			m := start("n0")
			wait(t, "the first leader", m.leads)
			for i := range *rounds {
				next := start(fmt.Sprint("n", i+1))
				standby(t, next)
				began := time.Now()
				stop(m)
				wait(t, "the next leader", next.leads)
				took = append(took, next.wrote.Sub(began))
				m = next
			}
			stop(m)
			slices.Sort(took)
			t.Logf("%s: %d stops under load, %d entries; from the stop to the next leader's first entry: median %v, maximum %v",
				name, *rounds, accepted.Load(), took[len(took)/2], took[len(took)-1])
			if most := took[len(took)-1]; most > 10*time.Second { // a third of the TTL
				t.Errorf("a handover took %v: it waited for an eviction", most)
			}
			checkLog(t, text, accepted.Load())
		})
	}
}

// standby waits until the member knows who leads: from then on it is told.
func standby(t *testing.T, m *member) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), ample)
	defer cancel()
	for v := m.elector.View(); ; {
		if v.Trusted {
			if o, ok := v.Owner("only"); ok && o.Node != "" {
				return
			}
		}
		var err error
		if v, err = m.elector.WaitView(ctx, v); err != nil {
			t.Fatal(err)
		}
	}
}

// checkLog finds each accepted entry exactly once: as many as were accepted, in one
// sequence without gaps.
func checkLog(t *testing.T, text string, accepted int64) {
	t.Helper()
	b, err := conf(t, text).Open(t.Context(), sqlite.Opener, postgres.Opener, mysql.Opener, etcd.Opener, consul.Opener, zookeeper.Opener)
	if err != nil {
		t.Fatal(err)
	}
	page, err := b.ReadLog(t.Context(), "only", 0, 0)
	if err = errors.Join(err, b.Close()); err != nil {
		t.Fatal(err)
	}
	if int64(page.Head.Seq) != accepted {
		t.Errorf("the log has %d entries, %d were accepted", page.Head.Seq, accepted)
	}
}

package tenurefx_test

import (
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	_ "github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"
	"go.uber.org/fx"

	"github.com/tenure-go/tenure/backends/consul"
	"github.com/tenure-go/tenure/backends/etcd"
	"github.com/tenure-go/tenure/backends/redis"
	"github.com/tenure-go/tenure/backends/sql/mysql"
	"github.com/tenure-go/tenure/backends/sql/postgres"
	"github.com/tenure-go/tenure/backends/sql/sqlite"
	"github.com/tenure-go/tenure/backends/zookeeper"
	"github.com/tenure-go/tenure/config"
	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/proof/ample"
	"github.com/tenure-go/tenure/internal/proof/servers"
	"github.com/tenure-go/tenure/tenurefx"
)

var rounds = flag.Int("rounds", 5, "how often the application is stopped under load on each backend")

// pool holds the servers that the tests share.
var pool servers.Pool

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(pool.Run(m))
}

// stores returns the backends' parts of the configuration, by name, for a namespace.
func stores(namespace string) map[string]func(t *testing.T) string {
	start := func(t *testing.T, kind servers.Kind) *servers.Server { return pool.Get(t, kind, nil) }
	return map[string]func(t *testing.T) string{
		"sqlite": func(t *testing.T) string {
			return fmt.Sprintf("{namespace: %s, path: %q}", namespace, filepath.Join(t.TempDir(), "stop.db"))
		},
		"postgres": func(t *testing.T) string {
			return fmt.Sprintf("{namespace: %s, create: true, migrate: true, dsn: %q}", namespace,
				start(t, servers.Postgres).Database(t).Reveal())
		},
		"mysql": func(t *testing.T) string {
			return fmt.Sprintf("{namespace: %s, create: true, migrate: true, dsn: %q}", namespace,
				start(t, servers.MariaDB).Database(t).Reveal())
		},
		"etcd": func(t *testing.T) string {
			return fmt.Sprintf("{namespace: %s, create: true, endpoints: [%q]}", namespace,
				"http://"+start(t, servers.Etcd).Addr())
		},
		"consul": func(t *testing.T) string {
			return fmt.Sprintf("{namespace: %s, create: true, address: %q}", namespace, start(t, servers.Consul).Addr())
		},
		"zookeeper": func(t *testing.T) string {
			return fmt.Sprintf("{namespace: %s, create: true, servers: [%q]}", namespace,
				start(t, servers.ZooKeeper).Addr())
		},
		"redis": func(t *testing.T) string {
			return fmt.Sprintf("{namespace: %s, create: true, addrs: [%q]}", namespace, start(t, servers.Redis).Addr())
		},
	}
}

// member is one run of the application: while it leads, four goroutines append.
type member struct {
	app     *fx.App
	elector *core.Elector
	leads   chan struct{} // closed by its first accepted entry
	wrote   time.Time     // when leads was closed; valid after that
	joined  atomic.Bool
}

// open opens a configuration's backend until the test ends.
func open(t *testing.T, c *config.Config) core.Backend {
	t.Helper()
	b, err := c.Open(t.Context(), sqlite.Opener(), postgres.Opener(), mysql.Opener(), etcd.Opener(),
		consul.Opener(), zookeeper.Opener(), redis.Opener())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

// TestShutdownUnderLoad repeatedly stops the leader's application while it writes. The work must
// end before the lease is released, and the standby must continue within the time of a hand-over.
// No entry is lost or duplicated, and nothing is left behind.
func TestShutdownUnderLoad(t *testing.T) {
	for name, part := range stores("stop-" + strings.ToLower(rand.Text()[:8])) {
		t.Run(name, func(t *testing.T) {
			text := "tenure: {ttl: 30s, backends: {" + name + ": " + part(t) + "}}"
			noLeaks(t)
			judge := open(t, conf(t, text))
			var leading atomic.Int32
			var accepted atomic.Int64
			start := func(node string) *member {
				c := conf(t, text)
				o := c.Options()
				o.Node = node
				m := &member{leads: make(chan struct{})}
				var first sync.Once
				m.app = fx.New(fx.NopLogger, fx.StopTimeout(ample.Time), fx.Supply(c, o),
					tenurefx.Backends(sqlite.Opener(), postgres.Opener(), mysql.Opener(), etcd.Opener(),
						consul.Opener(), zookeeper.Opener(), redis.Opener()),
					tenurefx.Module(), fx.Populate(&m.elector),
					fx.Provide(tenurefx.AsElection(func() tenurefx.Election {
						return tenurefx.Election{Shards: []string{"only"}, Handler: func(
							ctx context.Context, l *core.Lease,
						) error {
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
				ctx, cancel := context.WithTimeout(t.Context(), ample.Time)
				defer cancel()
				session := m.elector.View().Session
				if err := m.app.Stop(ctx); err != nil {
					t.Fatal(err)
				}
				if !m.joined.Load() {
					t.Fatal("stopped before the work was joined")
				}
				v, err := judge.Observe(t.Context(), driver.ObserveQuery{})
				if err != nil {
					t.Fatal(err)
				}
				for _, s := range v.Shards {
					if s.Owner.Session == session {
						t.Fatalf("the lease was not given back: the next leader waits for an eviction: %+v", s)
					}
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
			t.Logf("%s: %d stops under load, %d entries; from the stop to the next leader's first entry: median %v, "+
				"maximum %v",
				name, *rounds, accepted.Load(), took[len(took)/2], took[len(took)-1])
			checkLog(t, judge, accepted.Load())
		})
	}
}

// standby waits until the member knows the leader, and therefore learns of changes.
func standby(t *testing.T, m *member) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), ample.Time)
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

// hung is a backend that the application provides and does not close, and the session that joined
// through it.
type hung struct {
	core.Backend
	session driver.Session
}

func (h *hung) Join(ctx context.Context, m driver.Member) (driver.Session, error) {
	s, err := h.Backend.Join(ctx, m)
	h.session = s
	return s, err
}

// TestHungHandlerIsFenced: a handler that hangs beyond the deadline of the stop does no harm. The
// stop ends in time with an error, and the next member takes over. The store refuses the handler's
// later writes, which bypass its lease.
func TestHungHandlerIsFenced(t *testing.T) {
	for name, part := range stores("hangs-" + strings.ToLower(rand.Text()[:8])) {
		t.Run(name, func(t *testing.T) {
			c := conf(t, "tenure: {ttl: 5s, drain_budget: 500ms, backends: {"+name+": "+part(t)+"}}")
			noLeaks(t)
			app := func(node string, b core.Backend, h core.Handler) *fx.App {
				a := fx.New(fx.NopLogger, fx.Supply(fx.Annotate(b, fx.As(new(core.Backend))), optionsOf(c, node)),
					tenurefx.Module(),
					fx.Provide(tenurefx.AsElection(func() tenurefx.Election {
						return tenurefx.Election{Shards: []string{"only"}, Handler: h}
					})))
				ctx, cancel := context.WithTimeout(t.Context(), ample.Time)
				defer cancel()
				if err := a.Start(ctx); err != nil {
					t.Fatal(err)
				}
				return a
			}
			stop := func(a *fx.App, within time.Duration) error {
				ctx, cancel := context.WithTimeout(t.Context(), within)
				defer cancel()
				return a.Stop(ctx)
			}

			b := &hung{Backend: open(t, c)}
			granted, release, returned := make(chan struct{}), make(chan struct{}), make(chan struct{})
			var lease *core.Lease
			a := app("hangs", b, func(_ context.Context, l *core.Lease) error {
				defer close(returned)
				if _, err := l.Append(l.Context(), []byte("in time")); err != nil {
					t.Error(err)
				}
				lease = l
				close(granted)
				<-release
				return nil
			})
			wait(t, "the grant", granted)
			if err := stop(a, time.Second); err == nil {
				t.Error("the stop ended without an error, while the handler hangs")
			}

			taken := make(chan struct{})
			var once sync.Once // the lease may be granted again after a lapse
			b2 := open(t, c)
			next := app("next", b2, func(ctx context.Context, l *core.Lease) error {
				once.Do(func() { close(taken) })
				<-ctx.Done()
				return nil
			})
			wait(t, "the takeover", taken)
			if _, err := lease.Append(t.Context(), []byte("late")); err == nil {
				t.Error("the lease accepted a write after the stop")
			}
			late, err := b.session.Commit(t.Context(),
				[]driver.Write{{Fence: lease.Fence(), Number: 2, Nonce: 1,
					Ops: []driver.Op{{Kind: driver.OpAppend, Value: []byte("late")}}}})
			if err == nil {
				err = late[0].Err
			}
			if !errors.Is(err, driver.ErrFenced) {
				t.Errorf("the store answered the late write with %v, want %v", err, driver.ErrFenced)
			}
			page, err := b2.ReadLog(t.Context(), "only", 0, 10)
			if err != nil || len(page.Entries) != 1 || string(page.Entries[0].Payload) != "in time" {
				t.Errorf("the log is %+v, %v", page, err)
			}
			close(release)
			wait(t, "the handler", returned)
			if err := stop(next, ample.Time); err != nil {
				t.Error(err)
			}
		})
	}
}

// checkLog checks that the log has exactly one entry for each accepted entry, in one sequence
// without gaps.
func checkLog(t *testing.T, b core.Backend, accepted int64) {
	t.Helper()
	page, err := b.ReadLog(t.Context(), "only", 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	if int64(page.Head.Seq) != accepted {
		t.Errorf("the log has %d entries, %d were accepted", page.Head.Seq, accepted)
	}
}

package tenurefx_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/fx"
	"go.uber.org/fx/fxtest"

	"github.com/tenure-go/tenure/backends/memory"
	"github.com/tenure-go/tenure/backends/sql/postgres"
	"github.com/tenure-go/tenure/backends/sql/sqlite"
	"github.com/tenure-go/tenure/config"
	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/follower"
	"github.com/tenure-go/tenure/internal/proof/ample"
	"github.com/tenure-go/tenure/sharding"
	"github.com/tenure-go/tenure/sharding/assign"
	"github.com/tenure-go/tenure/tenurefx"
)

func conf(t *testing.T, text string) *config.Config {
	t.Helper()
	c, err := config.Load(&config.LoadOptions{Path: "app.yaml", Data: []byte(text), Environ: []string{}})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func sqliteConf(t *testing.T, more string) *config.Config {
	return conf(t, "tenure: {ttl: 10s, backends: {sqlite: {path: '"+filepath.Join(t.TempDir(), "t.db")+
		"', namespace: app}}"+more+"}")
}

// noLeaks fails the test if it leaves goroutines behind.
func noLeaks(t *testing.T) {
	t.Helper()
	before := runtime.NumGoroutine()
	t.Cleanup(func() {
		if !ample.Soon(context.Background(), func() bool { return runtime.NumGoroutine() <= before }) {
			buf := make([]byte, 1<<20)
			t.Fatalf("%d goroutines, %d before:\n%s", runtime.NumGoroutine(), before,
				buf[:runtime.Stack(buf, true)])
		}
	})
}

func wait(t *testing.T, what string, c <-chan struct{}) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(ample.Time):
		t.Fatalf("waited in vain: %s", what)
	}
}

func grants(n *atomic.Int32) core.Hooks {
	return core.Hooks{OnEvent: func(e core.Event) {
		if e.Kind == core.LeaseGranted {
			n.Add(1)
		}
	}}
}

// TestModule: an election runs from start to stop on the chosen backend. The other backend does not
// connect.
func TestModule(t *testing.T) {
	noLeaks(t)
	granted, joined := make(chan struct{}), atomic.Bool{}
	var hooks [2]atomic.Int32
	var log strings.Builder
	var mu sync.Mutex
	c := conf(t, "tenure: {backend: sqlite, ttl: 10s, drain_budget: 14s, backends: {sqlite: {path: '"+
		filepath.Join(t.TempDir(), "t.db")+
		"', namespace: app}, postgres: {dsn: 'postgres://nobody@127.0.0.1:1/none', namespace: app}}}")
	app := fxtest.New(t,
		fx.Supply(c, slog.New(slog.NewTextHandler(writerFunc(func(p []byte) (int, error) {
			mu.Lock()
			defer mu.Unlock()
			return log.Write(p)
		}), nil))),
		tenurefx.Backends(postgres.Opener(), sqlite.Opener()),
		tenurefx.Module(),
		fx.Provide(
			tenurefx.AsElection(func() tenurefx.Election {
				return tenurefx.Election{Shards: []string{"only"}, Handler: func(
					ctx context.Context, l *core.Lease,
				) error {
					if _, err := l.Append(ctx, []byte("x")); err != nil {
						return err
					}
					close(granted)
					<-ctx.Done()
					if !errors.Is(context.Cause(ctx), core.ErrShutdown) || l.Err() != nil {
						t.Errorf("asked to stop by %v, with a lease that is %v", context.Cause(ctx), l.Err())
					}
					joined.Store(true)
					return nil
				}}
			}),
			tenurefx.AsHooks(func() core.Hooks { return grants(&hooks[0]) }),
			tenurefx.AsHooks(func() core.Hooks { return grants(&hooks[1]) }),
		),
	)
	app.RequireStart()
	wait(t, "the grant", granted)
	app.RequireStop()
	if !joined.Load() {
		t.Error("stopped before the handler had returned")
	}
	if hooks[0].Load() != 1 || hooks[1].Load() != 1 {
		t.Errorf("hooks were called %d and %d times", hooks[0].Load(), hooks[1].Load())
	}
	mu.Lock()
	defer mu.Unlock()
	if !strings.Contains(log.String(), "drain_budget") || !strings.Contains(log.String(), "stop_timeout") {
		t.Errorf("no warning of a drain budget that does not fit: %s", log.String())
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// TestOwnBackend: a backend that the application supplies is used and not closed.
func TestOwnBackend(t *testing.T) {
	noLeaks(t)
	b, err := memory.Open(t.Context(), memory.New(), "app", nil)
	if err != nil {
		t.Fatal(err)
	}
	granted := make(chan struct{})
	app := fxtest.New(t,
		fx.Supply(fx.Annotate(b, fx.As(new(core.Backend))), &core.Options{TTL: 5 * time.Second, Node: "mine"}),
		tenurefx.Module(),
		fx.Provide(tenurefx.AsElection(func() tenurefx.Election {
			return tenurefx.Election{Shards: []string{"only"}, Handler: func(ctx context.Context, _ *core.Lease) error {
				close(granted)
				<-ctx.Done()
				return nil
			}}
		})),
		fx.Invoke(func(e *core.Elector) {
			if e.View().Node != "mine" {
				t.Errorf("node %q", e.View().Node)
			}
		}),
	)
	app.RequireStart()
	wait(t, "the grant", granted)
	app.RequireStop()
	if _, err := b.Get(t.Context(), "only", "key"); err != nil {
		t.Errorf("after the stop the backend answers %v", err)
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
}

// TestWork: the work starts when the lease is granted, and ends before the lease is given up.
func TestWork(t *testing.T) {
	noLeaks(t)
	started := make(chan struct{})
	var wg sync.WaitGroup
	var ended atomic.Bool
	stop := make(chan struct{})
	app := fxtest.New(t,
		fx.Supply(sqliteConf(t, "")),
		tenurefx.Backends(sqlite.Opener()), tenurefx.Module(),
		fx.Provide(tenurefx.AsElection(func() tenurefx.Election {
			return tenurefx.Work{
				Shards: []string{"only"},
				Start: func(ctx context.Context, l *core.Lease) error {
					wg.Go(func() {
						<-stop
						if l.Err() != nil || ctx.Err() != nil {
							t.Error("the lease ended before the work")
						}
						ended.Store(true)
					})
					close(started)
					return nil
				},
				Stop: func(context.Context) error { close(stop); wg.Wait(); return nil },
			}.Election()
		})),
	)
	app.RequireStart()
	wait(t, "the start", started)
	app.RequireStop()
	if !ended.Load() {
		t.Error("stopped before the work had ended")
	}
}

// TestStopIsBounded: at the deadline, a handler that does not return is left behind and the store
// is closed. The handler's later writes are refused.
func TestStopIsBounded(t *testing.T) {
	granted, release, wrote := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	app := fx.New(fx.NopLogger,
		fx.Supply(sqliteConf(t, "")),
		tenurefx.Backends(sqlite.Opener()), tenurefx.Module(),
		fx.Provide(tenurefx.AsElection(func() tenurefx.Election {
			return tenurefx.Election{Shards: []string{"only"}, Handler: func(_ context.Context, l *core.Lease) error {
				close(granted)
				<-release
				_, err := l.Append(context.Background(), []byte("late"))
				wrote <- err
				return nil
			}}
		})),
	)
	start, cancel := context.WithTimeout(t.Context(), ample.Time)
	defer cancel()
	if err := app.Start(start); err != nil {
		t.Fatal(err)
	}
	cancel() // its context never reaches the run
	wait(t, "the grant", granted)
	stop, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if err := app.Stop(stop); err == nil || !strings.Contains(err.Error(), "elector") {
		t.Errorf("got %v", err)
	}
	close(release) // only here, because the stop did not wait for the handler
	if err := <-wrote; err == nil {
		t.Error("a write after the stop was accepted")
	}
}

// TestSharding: two applications share the shards. When one leaves, the other gets all of them.
func TestSharding(t *testing.T) {
	noLeaks(t)
	c := sqliteConf(t, ", sharding: {interval: 50ms, keyspace: {name: orders, shards: 8}}")
	var mu sync.Mutex
	held := map[string]int{} // by shard
	news := make(chan struct{}, 1)
	app := func(node string) *fxtest.App {
		return fxtest.New(t, fx.Supply(c, optionsOf(c, node)), tenurefx.Backends(sqlite.Opener()), tenurefx.Module(),
			tenurefx.Sharding(),
			fx.Provide(func() tenurefx.ShardHandler {
				return func(ctx context.Context, l *core.Lease) error {
					count := func(n int) {
						mu.Lock()
						held[l.Shard()] += n
						if held[l.Shard()] > 1 {
							t.Errorf("two own %s", l.Shard())
						}
						mu.Unlock()
						select {
						case news <- struct{}{}:
						default:
						}
					}
					count(1)
					<-ctx.Done()
					count(-1)
					return nil
				}
			}),
			fx.Invoke(func(r *sharding.Router, m *sharding.Manager) {
				if _, err := r.OwnerOfKey("a"); err == nil {
					t.Error("somebody owns a key before the start")
				}
			}))
	}
	all := func() bool {
		mu.Lock()
		defer mu.Unlock()
		n := 0
		for _, h := range held {
			n += h
		}
		return n == 8
	}
	until := func(ok func() bool) {
		t.Helper()
		timeout := time.After(ample.Time)
		for !ok() {
			select {
			case <-news:
			case <-timeout:
				t.Fatalf("held %v", held)
			}
		}
	}
	a, b := app("a"), app("b")
	a.RequireStart()
	until(all)
	b.RequireStart()
	a.RequireStop()
	until(all)
	b.RequireStop()
}

// TestFollower: one application follows another's decisions.
func TestFollower(t *testing.T) {
	noLeaks(t)
	c := sqliteConf(t, ", follower: {batch: 10}")
	applied := make(chan struct{})
	var got []string
	reader := fxtest.New(t, fx.Supply(c), tenurefx.Backends(sqlite.Opener()), tenurefx.Follower(),
		fx.Provide(tenurefx.AsFollowing(func() tenurefx.Following {
			return tenurefx.Following{Name: "test", Shards: []string{"only"}, Applier: follower.Memory(func(
				_ context.Context, b follower.Batch,
			) error {
				for _, e := range b.Entries {
					if got = append(got, string(e.Payload)); len(got) == 3 {
						close(applied)
					}
				}
				return nil
			}, nil)}
		})))
	writer := fxtest.New(t, fx.Supply(c), tenurefx.Backends(sqlite.Opener()), tenurefx.Module(),
		fx.Provide(tenurefx.AsElection(func() tenurefx.Election {
			return tenurefx.Election{Shards: []string{"only"}, Handler: func(ctx context.Context, l *core.Lease) error {
				for i := range 3 {
					if _, err := l.Append(ctx, fmt.Append(nil, i)); err != nil {
						return err
					}
				}
				<-ctx.Done()
				return nil
			}}
		})))
	reader.RequireStart()
	writer.RequireStart()
	wait(t, "the entries", applied)
	writer.RequireStop()
	reader.RequireStop()
	if fmt.Sprint(got) != "[0 1 2]" {
		t.Errorf("got %v", got)
	}
}

// TestRefused: mistakes are reported when the application is created. If fx cannot create an
// application, it runs no stop hooks, so the backend stays open.
func TestRefused(t *testing.T) {
	// sharded returns an application with options o, whose file also contains keys.
	sharded := func(o sharding.Options, keys string) fx.Option {
		o.Shards = []string{"a"}
		return fx.Options(fx.Supply(sqliteConf(t, ", sharding: "+keys), &o), tenurefx.Backends(sqlite.Opener()), tenurefx.Module(),
			tenurefx.Sharding(), fx.Provide(func() tenurefx.ShardHandler { return func(context.Context, *core.Lease) error { return nil } }))
	}
	for name, c := range map[string]struct {
		o    fx.Option
		want string
	}{
		"no backend there": {fx.Options(fx.Supply(conf(t, "tenure: {backend: redis}")),
			tenurefx.Backends(sqlite.Opener()), tenurefx.Module()), "redis"},
		"election twice": {fx.Options(fx.Supply(sqliteConf(t, "")), tenurefx.Backends(sqlite.Opener()),
			tenurefx.Module(), twice("a")), "already contended"},
		"no handler": {fx.Options(fx.Supply(sqliteConf(t, "")), tenurefx.Backends(sqlite.Opener()),
			tenurefx.Module(), twice("")), "no handler"},
		"sharding's section": {fx.Options(fx.Supply(sqliteConf(t, ", sharding: {shard: [a]}")),
			tenurefx.Backends(sqlite.Opener()), tenurefx.Module(), tenurefx.Sharding(),
			fx.Provide(func() tenurefx.ShardHandler { return nil })), `did you mean "shards"`},
		"follower's section": {fx.Options(fx.Supply(sqliteConf(t, ", follower: {batch: many}")),
			tenurefx.Backends(sqlite.Opener()), tenurefx.Follower()), "follower.batch"},
		"the file's value before the program's": {sharded(sharding.Options{Interval: time.Second}, "{interval: 1ns}"), "interval 1ns"},
		"a part of a part":                      {sharded(sharding.Options{}, "{quarantine: {within: 1ms}}"), "quarantine.within 1ms"},
		"a rule":                                {sharded(sharding.Options{}, "{balance: {rules: {pin: [a]}}}"), "sharding.balance.rules.pin: got a list"},
		"an assigner that the file sets up":     {sharded(sharding.Options{Assigner: assign.Balance{}}, "{balance: {high: 2}}"), "balance has no effect"},
		"the follower's file before the program": {fx.Options(fx.Supply(sqliteConf(t, ", follower: {batch: 70000}"), &follower.Options{Batch: 5}),
			tenurefx.Backends(sqlite.Opener()), tenurefx.Follower()), "batch 70000"},
	} {
		app := fx.New(fx.NopLogger, c.o)
		if err := app.Err(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q in it", name, err, c.want)
		}
	}
}

func optionsOf(c *config.Config, node string) *core.Options {
	o := c.Options()
	o.Node = node
	return o
}

func twice(shard string) fx.Option {
	one := func() tenurefx.Election {
		if shard == "" {
			return tenurefx.Election{Shards: []string{"b"}}
		}
		return tenurefx.Election{Shards: []string{shard},
			Handler: func(context.Context, *core.Lease) error { return nil }}
	}
	return fx.Provide(tenurefx.AsElection(one), tenurefx.AsElection(func() tenurefx.Election { return one() }))
}

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	_ "github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"
	"go.uber.org/fx/fxtest"

	"github.com/tenure-go/tenure/backends/memory"
	"github.com/tenure-go/tenure/config"
	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/internal/proof/ample"
	"github.com/tenure-go/tenure/internal/proof/servers"
)

var pool servers.Pool

func TestMain(m *testing.M) { os.Exit(pool.Run(m)) }

// parts returns each backend's part of the configuration, by name. A configuration file may contain
// all parts, and one value selects the backend.
func parts() map[string]func(t *testing.T) string {
	start := func(kind servers.Kind) func(*testing.T) *servers.Server {
		return func(t *testing.T) *servers.Server { return pool.Get(t, kind, nil) }
	}
	return map[string]func(t *testing.T) string{
		"memory": func(*testing.T) string { return "{namespace: cron}" },
		"sqlite": func(t *testing.T) string {
			return fmt.Sprintf("{namespace: cron, path: %q}", filepath.Join(t.TempDir(), "cron.db"))
		},
		"postgres": func(t *testing.T) string {
			return fmt.Sprintf("{namespace: cron, create: true, migrate: true, dsn: %q}",
				start(servers.Postgres)(t).Database(t).Reveal())
		},
		"mysql": func(t *testing.T) string {
			return fmt.Sprintf("{namespace: cron, create: true, migrate: true, dsn: %q}",
				start(servers.MariaDB)(t).Database(t).Reveal())
		},
		"etcd": func(t *testing.T) string {
			return fmt.Sprintf("{namespace: cron, create: true, endpoints: [%q]}",
				"http://"+start(servers.Etcd)(t).Addr())
		},
		"consul": func(t *testing.T) string {
			return fmt.Sprintf("{namespace: cron, create: true, address: %q}", start(servers.Consul)(t).Addr())
		},
		"zookeeper": func(t *testing.T) string {
			return fmt.Sprintf("{namespace: cron, create: true, servers: [%q]}", start(servers.ZooKeeper)(t).Addr())
		},
		"redis": func(t *testing.T) string {
			return fmt.Sprintf("{namespace: cron, create: true, addrs: [%q]}", start(servers.Redis)(t).Addr())
		},
	}
}

// TestApp runs the application on every backend. When the process that runs the job stops, another
// process takes over the job.
func TestApp(t *testing.T) {
	for name, part := range parts() {
		t.Run(name, func(t *testing.T) {
			text := "tenure:\n  backends:\n    " + name + ": " + part(t) + "\n"
			if name != "memory" {
				text += "    memory: {namespace: cron}\n"
			}
			load := func() *config.Config {
				c, err := config.Load(&config.LoadOptions{Path: "cron.yaml", Data: []byte(text),
					Environ: []string{"TENURE__BACKEND=" + name}})
				if err != nil {
					t.Fatal(err)
				}
				return c
			}
			var running atomic.Int32
			run := func() (a *fxtest.App, ran chan struct{}) {
				ran = make(chan struct{}, 1000)
				a = fxtest.New(t, app(load(), 5*time.Millisecond, func(context.Context) (string, error) {
					if running.Add(1) != 1 {
						t.Error("two run the job")
					}
					defer running.Add(-1)
					select {
					case ran <- struct{}{}:
					default:
					}
					return "done", nil
				}))
				a.RequireStart()
				return a, ran
			}
			wait := func(ran chan struct{}) {
				t.Helper()
				select {
				case <-ran:
				case <-time.After(ample.Time):
					t.Fatal("the job does not run")
				}
			}
			first, ran := run()
			for range 3 {
				wait(ran)
			}
			if name == "memory" { // no other process reaches it
				first.RequireStop()
				return
			}
			second, ranToo := run()
			first.RequireStop()
			for range 3 {
				wait(ranToo)
			}
			second.RequireStop()
		})
	}
}

// TestFile checks that the program accepts the configuration file in this folder.
func TestFile(t *testing.T) {
	c, err := config.Load(&config.LoadOptions{Path: "cron.yaml", Environ: []string{}})
	if err != nil {
		t.Fatal(err)
	}
	if w := c.Warnings(); len(w) > 0 {
		t.Error(strings.Join(w, "\n"))
	}
}

// TestHandOver checks that a new leader runs the job when the job is due, and not earlier. A new
// leader also repeats an unfinished run.
func TestHandOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New()
		begin := time.Now()
		var runs []time.Duration // when each began
		leader := func(node string, until time.Duration, job func(context.Context) (string, error)) {
			b, err := memory.Open(t.Context(), store, "cron", nil)
			if err != nil {
				t.Fatal(err)
			}
			defer b.Close()
			ctx, stop := context.WithDeadline(t.Context(), begin.Add(until))
			defer stop()
			err = core.RunSingleton(ctx, b, "cron", func(ctx context.Context, lease *core.Lease) error {
				return lead(ctx, lease, time.Hour, func(ctx context.Context) (string, error) {
					runs = append(runs, time.Since(begin).Round(time.Minute))
					return job(ctx)
				})
			}, &core.Options{Node: node, LockDir: "none", Logger: slog.New(slog.DiscardHandler)})
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Fatal(err)
			}
		}
		quick := func(context.Context) (string, error) { return "done", nil }
		slow := func(ctx context.Context) (string, error) {
			<-ctx.Done()
			return "", ctx.Err()
		}
		leader("a", 90*time.Minute, quick)
		leader("b", 100*time.Minute, quick) // in between
		leader("c", 130*time.Minute, quick)
		leader("d", 190*time.Minute, slow) // stopped in the middle
		leader("e", 200*time.Minute, quick)
		want := []time.Duration{0, time.Hour, 2 * time.Hour, 3 * time.Hour, 190 * time.Minute}
		if !slices.Equal(runs, want) {
			t.Errorf("the job ran at %v, want %v", runs, want)
		}
	})
}

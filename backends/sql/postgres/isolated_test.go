package postgres

import (
	"context"
	stdsql "database/sql"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tenure-go/tenure/conformance"
	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/proof/ample"
	"github.com/tenure-go/tenure/internal/proof/faultproxy"
	"github.com/tenure-go/tenure/internal/proof/servers"
	"github.com/tenure-go/tenure/internal/proof/sqlfault"
)

// TestConformanceIsolated cuts a primary off from its synchronous standby, which is promoted. From
// then on, the primary extends no session, acknowledges no write, and shows nothing that the
// standby lacks.
func TestConformanceIsolated(t *testing.T) {
	t.Parallel()
	servers.Short(t, servers.Postgres)
	conformance.TestCases(t, conformance.Harness{Name: backendName, New: func(conformance.T) *conformance.Store {
		return synchronous(t, &Options{}).Store
	}}, "Chaos/IsolatedMaster", "Chaos/IsolatedReads")
}

// pair is a primary and a standby. Each commit waits for the standby. Isolate separates the
// servers.
type pair struct {
	*conformance.Store
	primary *stdsql.DB
}

func synchronous(t *testing.T, o *Options) *pair {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	primary := servers.New(t, servers.Postgres, &servers.Options{NoSync: true})
	dsn, err := primary.CreateDatabase(t.Context()) // it ends with its server
	must(err)
	o.Create, o.MaxConns = true, 2
	must(Migrate(t.Context(), dsn.Reveal(), o))
	standby := servers.New(t, servers.Postgres, &servers.Options{NoSync: true, Upstream: primary})
	way, err := faultproxy.New(primary.Addr(), nil)
	must(err)
	t.Cleanup(func() { way.Close() })

	first, second := setup.DB(t, primary.Admin()), setup.DB(t, standby.Admin())
	var info string
	must(second.QueryRowContext(t.Context(), "SHOW primary_conninfo").Scan(&info))
	_, from, _ := strings.Cut(primary.Addr(), ":")
	_, to, _ := strings.Cut(way.Addr(), ":")
	info = strings.ReplaceAll(strings.Replace(info, "port="+from, "port="+to, 1), "'", "''")
	sqlfault.Exec(t, second, "ALTER SYSTEM SET primary_conninfo = '"+info+"'")
	sqlfault.Exec(t, second, "SELECT pg_reload_conf()")
	sqlfault.Exec(t, first, "ALTER SYSTEM SET synchronous_standby_names = '*'")
	sqlfault.Exec(t, first, "SELECT pg_reload_conf()")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for n := 0; n != 1 || len(way.Conns()) == 0; {
		must(first.QueryRowContext(ctx, "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'").Scan(&n))
	}

	var at atomic.Pointer[string]
	lead := func(addr string) { at.Store(&addr) }
	lead(primary.Addr())
	return &pair{primary: first, Store: &conformance.Store{
		Open: func(ctx context.Context) (driver.Backend, error) {
			b, err := Open(ctx, strings.Replace(dsn.Reveal(), dsn.Addr(), *at.Load(), 1), "isolated", o)
			if err != nil {
				return nil, err
			}
			return b, nil
		},
		Isolate: func(context.Context) (func(context.Context) error, error) {
			return func(ctx context.Context) error {
				_, err := second.ExecContext(ctx, "SELECT pg_promote()")
				lead(standby.Addr())
				return err
			}, way.Set(faultproxy.BlackHole())
		},
	}}
}

// TestWaitCancelled: a server whose wait for the standby was cancelled commits, and only sends a
// warning. The outcome is unknown, and a barrier has failed (I2).
func TestWaitCancelled(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]*Options{"direct": {}, "pooler": {Pooler: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := synchronous(t, o)
			opened, err := p.Open(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			b := opened.(*Backend)
			defer b.Close()
			s := sqlfault.Join(t, b, "n1")
			granted, _ := sqlfault.Acquire(t, s, sqlfault.Claims(1))
			if _, err := p.Isolate(t.Context()); err != nil {
				t.Fatal(err)
			}
			for _, c := range []struct {
				what string
				do   func() error
				read bool
			}{
				{"a heartbeat", func() error { return s.Beat(t.Context()) }, false},
				{"a grant", func() error {
					res, err := s.Acquire(t.Context(), sqlfault.Claims(2)[1:])
					if err == nil {
						err = res[0].Err
					}
					return err
				}, false},
				{"an append", func() error {
					res, err := s.Commit(t.Context(), []driver.Write{sqlfault.AppendOf(granted[0].Fence, 1, []byte("a"))})
					if err == nil {
						err = res[0].Err
					}
					return err
				}, false},
				{"a read", func() error {
					_, err := b.ReadLog(t.Context(), granted[0].Fence.Shard, 0, 10)
					return err
				}, true},
			} {
				done := make(chan error, 1)
				go func() { done <- c.do() }()
				if err := cancelled(t, p.primary, done); err == nil || !c.read && !driver.Unknown(err) {
					t.Errorf("%s that the standby lacks: %v", c.what, err)
				}
			}
		})
	}
}

// cancelled cancels all waits for the standby until the call is done.
func cancelled(t *testing.T, primary *stdsql.DB, done <-chan error) error {
	t.Helper()
	deadline := time.After(ample.Time)
	for {
		select {
		case err := <-done:
			return err
		case <-deadline:
			t.Fatal("no answer")
		case <-time.After(10 * time.Millisecond):
			sqlfault.Exec(t, primary, "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'")
		}
	}
}

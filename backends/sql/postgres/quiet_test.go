package postgres

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tenure-go/tenure/backends/sql/internal/dialect"
	"github.com/tenure-go/tenure/backends/sql/internal/engine"
	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/proof/ample"
	"github.com/tenure-go/tenure/internal/proof/servers"
	"github.com/tenure-go/tenure/internal/proof/sqlfault"
)

// TestQuiet counts the transactions of two idle processes at the server.
func TestQuiet(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		options Options
		most    float64
	}{
		{"listening", Options{}, 3},
		{"pooler", Options{Pooler: true}, 8},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			server := pool.Get(t, servers.Postgres, nil)
			dsn := server.Database(t)
			through := dsn
			if c.options.Pooler {
				if err := Migrate(t.Context(), dsn.Reveal(), nil); err != nil {
					t.Fatal(err)
				}
				through = dsn.At(pool.Get(t, servers.PgBouncer, &servers.Options{Upstream: server}).Addr())
			}
			admin := setup.DB(t, server.Admin()) // in another database
			sqlfault.CheckQuiet(t, c.most, "transactions", func() (n int64) {
				err := admin.QueryRowContext(t.Context(),
					"SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = $1", dsn.Name()).Scan(&n)
				if err != nil {
					t.Fatal(err)
				}
				return n
			}, func() bool { return true }, open(t, through, c.options), open(t, through, c.options))
		})
	}
}

// openHearing opens a backend that listens. The test can make its connections deaf.
func openHearing(t *testing.T, dsn servers.DSN, ears *ears) (driver.Backend, *store) {
	t.Helper()
	o, err := (&Options{NoNotify: true, Create: true, IdlePollPeriod: time.Second}).withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	stmts, err := compile(o)
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := parse(dsn.Reveal(), o)
	if err != nil {
		t.Fatal(err)
	}
	st, err := openStore(t.Context(), dsn.Reveal(), "app", o, stmts)
	if err != nil {
		t.Fatal(err)
	}
	cfg.ConnConfig.DialFunc = ears.dial
	st.hints = dialect.NewHints(st.life.Context(), &st.wake, newLink(st, connector(cfg), o.TablePrefix+"changed", "app"),
		o.IdlePollPeriod)
	st.hints.Start()
	b, err := engine.New(t.Context(), config("app", o, st, stmts))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	return b, st
}

// ears makes connections on which nothing arrives once they are deaf.
type ears struct{ generation, deafTo atomic.Int64 }

// deafen stops the input of the connections made so far.
func (e *ears) deafen() { e.deafTo.Store(e.generation.Load()) }

func (e *ears) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	return &ear{conn, e, e.generation.Add(1)}, nil
}

type ear struct {
	net.Conn
	of         *ears
	generation int64
}

// Read reads nothing while the connection is open and deaf.
func (e *ear) Read(b []byte) (int, error) {
	for {
		n, err := e.Conn.Read(b)
		if err != nil || e.of.deafTo.Load() < e.generation {
			return n, err
		}
	}
}

// TestDeaf: a connection that goes deaf but stays open is noticed and replaced. Changes during that
// time are reported, as are changes without a notification.
func TestDeaf(t *testing.T) {
	t.Parallel()
	dsn := pool.Get(t, servers.Postgres, nil).Database(t)
	writer, ears := open(t, dsn, Options{NoNotify: true}), new(ears)
	reader, st := openHearing(t, dsn, ears)
	hears := func() { ample.Wait(t, "the connection does not hear", st.Hears) }
	sqlfault.CheckUntold(t, writer, reader, hears, func() {
		hears()
		made := ears.generation.Load()
		ears.deafen()
		ample.Wait(t, "a deaf connection is not noticed", func() bool { return !st.Hears() || ears.generation.Load() > made })
	}, hears)
}

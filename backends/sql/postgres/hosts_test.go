package postgres

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/proof/faultproxy"
	"github.com/tenure-go/tenure/internal/proof/servers"
	"github.com/tenure-go/tenure/internal/proof/sqlfault"
)

// silentHost returns a proxy that leads to a server and can fall silent, and a DSN that names the
// proxy before the server.
func silentHost(t *testing.T) (through string, host *faultproxy.Proxy) {
	t.Helper()
	dsn := pool.Get(t, servers.Postgres, nil).Database(t)
	if err := Migrate(t.Context(), dsn.Reveal(), nil); err != nil {
		t.Fatal(err)
	}
	host, err := faultproxy.New(dsn.Addr(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = host.Close() }) // a cut connection may fail to close
	return strings.Replace(dsn.Reveal(), dsn.Addr(), host.Addr()+","+dsn.Addr(), 1), host
}

// TestSilentHostIsLeft: the first of several hosts accepts connections and sends nothing. A process
// that starts waits for the silent host once, and then serves (E4).
func TestSilentHostIsLeft(t *testing.T) {
	t.Parallel()
	through, silent := silentHost(t)
	if err := silent.Set(faultproxy.BlackHole()); err != nil {
		t.Fatal(err)
	}
	for i := range 2 {
		began := time.Now()
		b, err := Open(t.Context(), through, fmt.Sprint("app", i), &Options{Create: true})
		if err != nil {
			t.Fatalf("after %v: %v", time.Since(began), err)
		}
		opened := time.Since(began)
		s := sqlfault.Join(t, b, "n1")
		sqlfault.Acquire(t, s, sqlfault.Claims(1))
		for range 2 {
			if err := s.Beat(t.Context()); err != nil {
				t.Error(err)
			}
		}
		t.Logf("opened after %v, serves after %v", opened, time.Since(began))
		if err := b.Close(); err != nil {
			t.Error(err)
		}
		if n := silent.Stats().Accepted; n > 3*int64(i+1) { // one if the machine is not busy
			t.Errorf("%d connections to the silent host after %d openings, want one each", n, i+1)
		}
	}
}

// TestHostFallsSilent: the host that all connections use falls silent, and the connections are
// reset, as by a firewall. Each pool waits for the silent host at most once.
func TestHostFallsSilent(t *testing.T) {
	t.Parallel()
	through, host := silentHost(t)
	b, err := Open(t.Context(), through, "app", &Options{Create: true, NoNotify: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	s := sqlfault.Join(t, b, "n1")
	granted, _ := sqlfault.Acquire(t, s, sqlfault.Claims(1))
	before := host.Stats().Accepted
	if before == 0 {
		t.Error("nothing went through the first host")
	}
	if err := host.Set(faultproxy.BlackHole()); err != nil {
		t.Fatal(err)
	}
	host.Reset()
	number := driver.WriteNo(1)
	for range 10 {
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		err := s.Beat(ctx)
		cancel()
		t.Logf("a heartbeat after %v: %v", time.Since(began), err)
		w := sqlfault.AppendOf(granted[0].Fence, number, []byte("a"))
		if r, err := s.Commit(t.Context(), []driver.Write{w}); err == nil && r[0].Err == nil {
			number++
		}
		if _, err := b.ReadLog(t.Context(), "shard-00000", 0, 0); err != nil {
			t.Log(err)
		}
	}
	if n := host.Stats().Accepted - before; n > 8 {
		t.Errorf("%d connections to the silent host, want one for each that a pool had", n)
	}
	if number < 6 {
		t.Errorf("%d of 10 commits passed", number-1)
	}
}

// TestPatience: patience with a host doubles until a host provides a connection, and then depends
// on that connection's time. If the DSN sets a time-out, patience equals the time-out.
func TestPatience(t *testing.T) {
	t.Parallel()
	const two = "postgres://u:p@a.example:5432,b.example:5433,a.example:5434/d?sslmode=verify-full"
	cfg, err := parse(two, &Options{})
	if err != nil {
		t.Fatal(err)
	}
	order := func() (hosts string, patience time.Duration) {
		c := cfg.ConnConfig.Copy()
		if err := cfg.BeforeConnect(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		hosts = fmt.Sprint(c.Host, c.Port)
		for _, f := range c.Fallbacks {
			hosts += fmt.Sprint(" ", f.Host, f.Port)
		}
		return hosts, c.ConnectTimeout
	}
	var got []time.Duration
	for range 5 {
		_, patience := order()
		got = append(got, patience)
	}
	const ms = time.Millisecond
	if want := []time.Duration{250 * ms, 500 * ms, 1000 * ms, 2000 * ms, 2000 * ms}; !slices.Equal(got, want) {
		t.Errorf("hosts have %v, want %v", got, want)
	}
	c := cfg.ConnConfig.Copy()
	if err := cfg.BeforeConnect(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	c.LookupFunc = nil
	h := &hosts{}
	h.gave(hostPort{"b.example", 5433}, 50*ms)
	if got := h.patience(); got != 400*ms {
		t.Errorf("after a connection in 50 ms a host has %v, want 400 ms", got)
	}
	h.first(c)
	if c.Host != "b.example" || c.Port != 5433 || len(c.Fallbacks) != 2 || c.TLSConfig == nil || c.TLSConfig.ServerName != "b.example" ||
		c.Fallbacks[0].Host != "a.example" || c.Fallbacks[0].Port != 5432 || c.Fallbacks[1].Port != 5434 {
		t.Errorf("the host that served is not the first: %s, then %+v", c.Host, c.Fallbacks)
	}
	if cfg, err = parse(two+"&connect_timeout=7", &Options{}); err != nil {
		t.Fatal(err)
	}
	if _, patience := order(); patience != 7*time.Second {
		t.Errorf("with connect_timeout a host has %v, want 7 s", patience)
	}
	if cfg, err = parse("postgres://u:p@a.example/d?sslmode=verify-full", &Options{}); err != nil {
		t.Fatal(err)
	}
	if _, patience := order(); patience != 0 {
		t.Errorf("a host that is alone has %v", patience)
	}
}

// TestEntriesOfAHostStayTogether: the entries of one host share its patience.
func TestEntriesOfAHostStayTogether(t *testing.T) {
	t.Parallel()
	cfg, err := parse("postgres://u:p@127.0.0.1:1,127.0.0.1:2/d?sslmode=prefer", &Options{})
	if err != nil {
		t.Fatal(err)
	}
	c := cfg.ConnConfig
	(&hosts{last: hostPort{"127.0.0.1", 2}}).first(c)
	got := []string{fmt.Sprint(c.Port, c.TLSConfig != nil)}
	for _, f := range c.Fallbacks {
		got = append(got, entry(f))
	}
	if want := []string{"2 true", "2 false", "1 true", "1 false"}; !slices.Equal(got, want) {
		t.Errorf("asked in the order %q, want %q", got, want)
	}
}

func entry(f *pgconn.FallbackConfig) string { return fmt.Sprint(f.Port, f.TLSConfig != nil) }

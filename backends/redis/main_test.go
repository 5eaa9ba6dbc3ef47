package redis

import (
	"context"
	"flag"
	"net"
	"os"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/tenure-go/tenure/internal/proof/servers"
	"github.com/tenure-go/tenure/internal/proof/share"
	"github.com/tenure-go/tenure/internal/proof/sqlfault"
	"github.com/tenure-go/tenure/internal/proof/system"
)

var pool servers.Pool

var allRounds = flag.Int("redis.rounds", 2, "promotions of a replica that is behind")

func rounds(t *testing.T) int {
	t.Helper()
	return share.Of(t, "redis.rounds", *allRounds, 1)
}

func TestMain(m *testing.M) {
	if code, is := system.Member(Opener()); is {
		os.Exit(code)
	}
	system.AddFlags(flag.CommandLine)
	os.Exit(pool.RunExamples(m, servers.Redis, "REDIS_ADDR"))
}

func config(t testing.TB, s *servers.Server) *goredis.UniversalOptions {
	t.Helper()
	tls, err := s.TLSConfig()
	if err != nil {
		t.Fatal(err)
	}
	return &goredis.UniversalOptions{Addrs: []string{s.Addr()}, TLSConfig: tls}
}

func newAdmin(t testing.TB, c *goredis.UniversalOptions) goredis.UniversalClient {
	t.Helper()
	o := *c
	client := goredis.NewUniversalClient(&o)
	t.Cleanup(func() { client.Close() })
	return client
}

func openOn(t testing.TB, c *goredis.UniversalOptions, o Options) *Backend {
	t.Helper()
	o.Create = true
	return sqlfault.Open(t, func(ctx context.Context) (*Backend, error) { return Open(ctx, c, t.Name(), &o) })
}

func bounded(t testing.TB, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// address is an address that leads to different servers over time.
type address struct {
	config *goredis.UniversalOptions
	at     atomic.Pointer[string]
}

// proxied returns an address that leads to a server.
func proxied(t testing.TB, s *servers.Server) *address {
	a := &address{config: config(t, s)}
	a.lead(t, s)
	a.config.Dialer = func(ctx context.Context, network, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, network, *a.at.Load())
	}
	return a
}

func (a *address) lead(t testing.TB, to *servers.Server) {
	t.Helper()
	addr := to.Addr()
	a.at.Store(&addr)
}

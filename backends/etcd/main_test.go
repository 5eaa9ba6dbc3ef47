package etcd

import (
	"context"
	"flag"
	"fmt"
	"os"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/tenure-go/tenure/internal/proof/servers"
	"github.com/tenure-go/tenure/internal/proof/sqlfault"
	"github.com/tenure-go/tenure/internal/proof/system"
)

var pool servers.Pool

var outageRounds = flag.Int("outage.rounds", 0, "rounds at each of three TTLs of the tests that take servers away; 0: "+
	"a few at one")

func TestMain(m *testing.M) {
	if code, is := system.Member(Opener()); is {
		os.Exit(code)
	}
	if how := os.Getenv(candidateVariable); how != "" {
		if err := candidate(how); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	system.AddFlags(flag.CommandLine)
	os.Exit(pool.RunExamples(m, servers.Etcd, "ETCD_ENDPOINT"))
}

func config(t testing.TB, members ...*servers.Server) clientv3.Config {
	t.Helper()
	tls, err := members[0].TLSConfig()
	if err != nil {
		t.Fatal(err)
	}
	c := clientv3.Config{TLS: tls, Logger: zap.NewNop()}
	for _, s := range members {
		c.Endpoints = append(c.Endpoints, s.Addr())
	}
	return c
}

func newClient(t testing.TB, c clientv3.Config) *clientv3.Client {
	t.Helper()
	client, err := clientv3.New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return client
}

func openOn(t testing.TB, c clientv3.Config, o Options) *Backend {
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

package redis

import (
	"testing"
	"time"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/proof/outage"
	"github.com/tenure-go/tenure/internal/proof/servers"
)

// TestLostConnection: connections that are lost silently do not delay any process for long.
func TestLostConnection(t *testing.T) {
	t.Parallel()
	server := pool.Get(t, servers.Redis, nil)
	outage.Lost{Addr: server.Addr(), Conns: 6, Notice: 5 * time.Second, Open: func(t *testing.T, addr, namespace string) driver.Backend {
		c := config(t, server)
		c.Addrs = []string{addr}
		b, err := Open(t.Context(), c, namespace, &Options{Create: true})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = b.Close() }) // the test may have cut it off
		return b
	}}.LostConnection(t)
}

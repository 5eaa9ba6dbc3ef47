package etcd

import (
	"testing"
	"time"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/proof/ample"
	"github.com/tenure-go/tenure/internal/proof/outage"
	"github.com/tenure-go/tenure/internal/proof/servers"
)

// TestLostConnection: connections that are lost silently do not delay any process for long.
func TestLostConnection(t *testing.T) {
	t.Parallel()
	server := pool.Get(t, servers.Etcd, nil)
	outage.Lost{Addr: server.Addr(), Conns: 2, Notice: 13 * time.Second, Open: func(t *testing.T, addr, namespace string) driver.Backend {
		c := config(t, server)
		c.Endpoints = []string{addr}
		b, err := Open(bounded(t, ample.Time), c, namespace, &Options{Create: true})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = b.Close() }) // the test may have cut it off
		return b
	}}.LostConnection(t)
}

package zookeeper

import (
	"context"
	"crypto/rand"
	"testing"
	"time"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/proof/ample"
	"github.com/tenure-go/tenure/internal/proof/faultproxy"
	"github.com/tenure-go/tenure/internal/proof/outage"
	"github.com/tenure-go/tenure/internal/proof/servers"
)

// TestLostConnection: connections lost in silence delay no process for long.
func TestLostConnection(t *testing.T) {
	t.Parallel()
	server := pool.Get(t, servers.ZooKeeper, nil)
	outage.Lost{Addr: server.Addr(), Conns: 3, Notice: 7 * time.Second, Open: func(t *testing.T, addr, namespace string) driver.Backend {
		b, err := Open(bounded(t, ample.Time), []string{addr}, namespace, &Options{Create: true})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = b.Close() }) // the test may have cut it off
		return b
	}}.LostConnection(t)
}

// TestLostLinks loses links in silence. After one of them has cost a call, or once a heartbeat was
// answered on a new link, the other lost links cost no call.
func TestLostLinks(t *testing.T) {
	t.Parallel()
	server := pool.Get(t, servers.ZooKeeper, patient)
	for _, c := range []struct {
		name string
		kept func(*store) *connector
		find func(t *testing.T, b *Backend, s driver.Session, f driver.Fence)
		left func(*store) *connector // a link that nothing uses meanwhile
	}{
		{"Call", func(s *store) *connector { return s.reads }, func(t *testing.T, b *Backend, s driver.Session, f driver.Fence) {
			ctx, cancel := context.WithTimeout(t.Context(), 2*lostPatience)
			defer cancel()
			done := make(chan error, 1)
			go func() { done <- commit(ctx, s, f, 1, "a") }()
			for len(done) == 0 { // the server is not silent
				if _, err := b.ReadLog(t.Context(), f.Shard, 0, 1); err != nil {
					t.Error(err)
				}
			}
			if err := <-done; !driver.Unknown(err) {
				t.Errorf("a commit on a lost link returns %v, want an unknown outcome", err)
			}
		}, func(s *store) *connector { return s.beats[s.routes.Current()] }},
		{"Heartbeat", nil, func(t *testing.T, _ *Backend, s driver.Session, _ driver.Fence) {
			ctx, cancel := context.WithCancel(t.Context())
			waits := make(chan error, 1)
			go func() { waits <- s.Beat(ctx) }()
			defer func() { cancel(); <-waits }()
			time.Sleep(100 * time.Millisecond) // it may take longer until the first heartbeat is sent
			ample.Wait(t, "a heartbeat is not answered", func() bool { return s.Beat(t.Context()) == nil })
		}, func(s *store) *connector { return s.writes }},
	} {
		t.Run(c.name, func(t *testing.T) {
			proxy, err := faultproxy.New(server.Addr(), nil)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { proxy.Close() })
			b, err := Open(bounded(t, ample.Time), []string{proxy.Addr()}, t.Name()+rand.Text(), &Options{Create: true})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { b.Close() })
			s := join(t, b, "n1")
			granted, _ := acquire(t, s, claims(1))
			if err := s.Beat(t.Context()); err != nil {
				t.Fatal(err)
			}
			before, err := c.left(b.store).link(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			kept := ""
			if c.kept != nil {
				lk, err := c.kept(b.store).link(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				kept = lk.wire.LocalAddr().String()
			}
			for _, conn := range proxy.Conns() {
				if conn.Client().String() == kept {
					continue
				}
				if err := conn.Set(faultproxy.BlackHole()); err != nil {
					t.Fatal(err)
				}
			}
			t.Cleanup(func() { _ = proxy.Set(faultproxy.Faults{}) }) // so that they can be closed
			c.find(t, b, s, granted[0].Fence)
			ample.Wait(t, "the link that nothing used is kept", func() bool { return !before.alive() })
		})
	}
}

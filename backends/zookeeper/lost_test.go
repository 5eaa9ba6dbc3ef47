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
	"github.com/tenure-go/tenure/internal/proof/sqlfault"
)

// TestLostConnection: connections that are lost silently do not delay any process for long.
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

// TestLostLinks loses links silently. After one lost link has cost a call, or after a heartbeat was
// answered on a new link, the other lost links cost no call. A lost link costs only a few short
// calls.
func TestLostLinks(t *testing.T) {
	t.Parallel()
	server := pool.Get(t, servers.ZooKeeper, patient)
	for _, c := range []struct {
		name string
		kept func(*store) *connector
		find func(t *testing.T, b *Backend, s driver.Session, f driver.Fence)
		left func(*store) *connector // a lost link that find does not use
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
		{"ShortCalls", func(s *store) *connector { return s.reads }, func(t *testing.T, b *Backend, s driver.Session, f driver.Fence) {
			reading, stop := context.WithCancel(t.Context())
			ended := make(chan struct{})
			defer func() { stop(); <-ended }()
			go func() { // the server is not silent
				defer close(ended)
				for reading.Err() == nil {
					_, _ = b.ReadLog(reading, f.Shard, 0, 1)
				}
			}()
			lost, err := b.store.writes.link(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			ample.Wait(t, "short calls keep a lost link", func() bool { // none waits as long as a lost link needs alone
				ctx, cancel := context.WithTimeout(t.Context(), lostPatience*3/10)
				defer cancel()
				_ = commit(ctx, s, f, 1, "a") // on a busy machine, even a new link may need longer
				return !lost.alive()
			})
		}, func(s *store) *connector { return s.writes }},
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
			s := sqlfault.Join(t, b, "n1")
			granted, _ := sqlfault.Acquire(t, s, sqlfault.Claims(1))
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
			t.Cleanup(func() { _ = proxy.Set(faultproxy.Faults{}) }) // so that the links can be closed
			c.find(t, b, s, granted[0].Fence)
			ample.Wait(t, "the link that nothing used is kept", func() bool { return !before.alive() })
		})
	}
}

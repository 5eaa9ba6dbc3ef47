package zookeeper

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/internal/proof/faultproxy"
	"github.com/tenure-go/tenure/internal/proof/servers"
)

// TestLostConnection: one of an idle standby's connections says nothing more, and ends
// nothing, as behind a firewall that forgot it. Then the owner's machine dies, or the owner
// hands its shard over. The standby serves the shard long before pings would find out,
// whichever connection it is.
func TestLostConnection(t *testing.T) {
	t.Parallel()
	server := pool.Get(t, servers.ZooKeeper, nil)
	const ttl, limit = time.Second, callTimeout / 3
	for lost := range 3 {
		for _, how := range []string{"died", "handedOver"} {
			t.Run(fmt.Sprint(how, lost), func(t *testing.T) {
				t.Parallel()
				namespace := fmt.Sprint("lost-", how, lost)
				owner := newLostMember(t, server.Addr(), namespace, "owner", ttl)
				<-owner.leads
				standby := newLostMember(t, server.Addr(), namespace, "standby", ttl)
				conns := standby.idle(t)
				if err := conns[lost].Set(faultproxy.BlackHole()); err != nil {
					t.Fatal(err)
				}
				start := time.Now()
				if how == "died" {
					if err := owner.proxy.Set(faultproxy.BlackHole()); err != nil {
						t.Fatal(err)
					}
				} else if err := owner.e.HandOver(t.Context(), standby.e.View().Session, "s"); err != nil {
					t.Fatal(err)
				}
				select {
				case at := <-standby.leads:
					if took := at.Sub(start); took > limit {
						t.Errorf("after %v, want at most %v", took, limit)
					} else {
						t.Logf("after %v", took.Round(time.Millisecond))
					}
				case <-time.After(2 * callTimeout):
					t.Fatalf("not within %v", 2*callTimeout)
				}
			})
		}
	}
}

// lostMember is a member that contends for a shard through a proxy of its own.
type lostMember struct {
	proxy *faultproxy.Proxy
	e     *core.Elector
	leads chan time.Time
}

// newLostMember returns a member once it has a session and knows an owner.
func newLostMember(t *testing.T, server, namespace, node string, ttl time.Duration) *lostMember {
	t.Helper()
	proxy, err := faultproxy.New(server, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = proxy.Close() })
	b, err := Open(bounded(t, 20*time.Second), []string{proxy.Addr()}, namespace, &Options{Create: true})
	if err != nil {
		t.Fatal(err)
	}
	e, err := core.NewElector(b, &core.Options{Node: node, TTL: ttl, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	m := &lostMember{proxy: proxy, e: e, leads: make(chan time.Time, 100)}
	if err := e.Contend(func(ctx context.Context, _ *core.Lease) error {
		m.leads <- time.Now()
		<-ctx.Done()
		return nil
	}, "s"); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- e.Run(ctx) }()
	t.Cleanup(func() {
		_ = proxy.Set(faultproxy.Faults{})
		stop()
		<-done
		_ = b.Close()
	})
	limit := bounded(t, 20*time.Second)
	for view := e.View(); view.Session == "" || len(view.Shards) == 0; {
		if view, err = e.WaitView(limit, view); err != nil {
			t.Fatal(err)
		}
	}
	return m
}

// idle waits until the member has all of its connections, and has seen a heartbeat of the
// other one. It returns the connections: for writes, for reads and watches, for heartbeats.
func (m *lostMember) idle(t *testing.T) []*faultproxy.Conn {
	t.Helper()
	const all = 3
	limit := bounded(t, 20*time.Second)
	if err := m.proxy.Wait(limit, func(s faultproxy.Stats) bool { return s.Open == all }); err != nil {
		t.Fatalf("a standby has %d connections, want %d: %v", m.proxy.Stats().Open, all, err)
	}
	for len(m.e.Heartbeats()) == 0 {
		select {
		case <-time.After(10 * time.Millisecond):
		case <-limit.Done():
			t.Fatal("no heartbeat of the owner was seen")
		}
	}
	return m.proxy.Conns()
}

package consul

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/proof/outage"
	"github.com/tenure-go/tenure/internal/proof/servers"
	"github.com/tenure-go/tenure/internal/proof/share"
)

// opening returns a function that opens backends on one namespace.
func opening(t *testing.T) func(through []string) driver.Backend {
	namespace := fresh()
	return func(through []string) driver.Backend {
		b, err := Open(t.Context(), Config{Addresses: through}, namespace, &Options{Create: true})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := b.Close(); err != nil {
				t.Error(err)
			}
		})
		return b
	}
}

// TestServerSilent: a server that no process reaches does not cause the loss of a lease.
func TestServerSilent(t *testing.T) {
	t.Parallel()
	cluster := servers.NewCluster(t, servers.Consul, 3, nil)
	outage.EachTTL(t, *outageRounds, func(t *testing.T, ttl time.Duration, rounds int) {
		outage.Silent(t, cluster.Addrs(), ttl, rounds, opening(t))
	})
}

// TestHolderAndServerDie: if a server dies together with the holder, the takeover is not delayed.
func TestHolderAndServerDie(t *testing.T) {
	t.Parallel()
	cluster := servers.NewCluster(t, servers.Consul, 3, nil)
	outage.EachTTL(t, *outageRounds, func(t *testing.T, ttl time.Duration, rounds int) {
		outage.HolderDies(t, cluster.Addrs(), ttl, rounds, opening(t))
	})
}

// TestStartAtSilentServer: a process that first tries a silent server soon serves.
func TestStartAtSilentServer(t *testing.T) {
	t.Parallel()
	cluster := servers.NewCluster(t, servers.Consul, 3, nil)
	rounds := share.Of(t, "outage.rounds", max(3, *outageRounds), 1)
	for _, ttl := range []time.Duration{500 * time.Millisecond, time.Second} {
		outage.Starts(t, cluster.Addrs(), ttl, rounds, opening(t))
	}
}

// TestLeaderStops: the other two servers continue without the leader.
func TestLeaderStops(t *testing.T) {
	t.Parallel()
	// Otherwise a stopped server counts as dead, and has no vote for 10 s afterwards.
	cluster := servers.NewCluster(t, servers.Consul, 3,
		&servers.Options{Config: []string{"autopilot = { cleanup_dead_servers = false }"}})
	var clients []*api.Client
	for _, s := range cluster.Members() {
		c, err := client(s)
		if err != nil {
			t.Fatal(err)
		}
		clients = append(clients, c)
	}
	var stopped atomic.Int64
	leader := func() int {
		for i, c := range clients {
			self, err := c.Agent().Self()
			if err != nil {
				t.Fatal(err)
			}
			if of, _ := self["Stats"]["consul"].(map[string]any); of["leader"] == "true" {
				stopped.Store(int64(i))
				return i
			}
		}
		t.Fatal("no server leads")
		return 0
	}
	read := func(ctx context.Context) (err error) {
		for i, c := range clients {
			if i == int(stopped.Load()) {
				continue
			}
			ctx, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
			_, _, err = c.KV().Get("x", (&api.QueryOptions{RequireConsistent: true}).WithContext(ctx))
			cancel()
			if err == nil {
				return nil
			}
		}
		return err
	}
	rounds := max(1, *outageRounds/3)
	outage.LeaderStops(t, cluster, 2*time.Second, 10*time.Second, rounds, leader, read, opening(t))
}

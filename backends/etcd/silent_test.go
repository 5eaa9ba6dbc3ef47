package etcd

import (
	"context"
	"crypto/rand"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/proof/ample"
	"github.com/tenure-go/tenure/internal/proof/outage"
	"github.com/tenure-go/tenure/internal/proof/servers"
	"github.com/tenure-go/tenure/internal/proof/share"
)

// openingOn returns a function that opens backends on one namespace.
func openingOn(t *testing.T, c clientv3.Config) func(through []string) driver.Backend {
	namespace := "silent/" + rand.Text()[:8]
	return func(through []string) driver.Backend {
		c.Endpoints = through
		b, err := Open(t.Context(), c, namespace, &Options{Create: true})
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

// TestMemberSilent: a member that no process reaches does not cause the loss of a lease.
func TestMemberSilent(t *testing.T) {
	t.Parallel()
	cluster := servers.NewCluster(t, servers.Etcd, 3, nil)
	outage.EachTTL(t, *outageRounds, func(t *testing.T, ttl time.Duration, rounds int) {
		outage.Silent(t, cluster.Addrs(), ttl, rounds, openingOn(t, config(t, cluster.Members()...)))
	})
}

// TestHolderAndMemberDie: if a member dies together with the holder, the takeover is not delayed.
func TestHolderAndMemberDie(t *testing.T) {
	t.Parallel()
	cluster := servers.NewCluster(t, servers.Etcd, 3, nil)
	outage.EachTTL(t, *outageRounds, func(t *testing.T, ttl time.Duration, rounds int) {
		outage.HolderDies(t, cluster.Addrs(), ttl, rounds, openingOn(t, config(t, cluster.Members()...)))
	})
}

// TestStartAtSilentMember: a process that first tries a silent member soon serves.
func TestStartAtSilentMember(t *testing.T) {
	t.Parallel()
	cluster := servers.NewCluster(t, servers.Etcd, 3, nil)
	rounds := share.Of(t, "outage.rounds", max(3, *outageRounds), 1)
	for _, ttl := range []time.Duration{500 * time.Millisecond, time.Second} {
		outage.Starts(t, cluster.Addrs(), ttl, rounds, openingOn(t, config(t, cluster.Members()...)))
	}
}

// TestLeaderStops: the other two members continue without the leader.
func TestLeaderStops(t *testing.T) {
	t.Parallel()
	cluster := servers.NewCluster(t, servers.Etcd, 3, nil)
	var clients []*clientv3.Client
	for _, s := range cluster.Members() {
		clients = append(clients, newClient(t, config(t, s)))
	}
	var stopped atomic.Int64
	leader := func() int {
		for i, c := range clients {
			resp, err := c.Status(bounded(t, ample.Time), c.Endpoints()[0])
			if err != nil {
				t.Fatal(err)
			}
			if resp.Leader == resp.Header.MemberId {
				stopped.Store(int64(i))
				return i
			}
		}
		t.Fatal("no member leads")
		return 0
	}
	read := func(ctx context.Context) (err error) {
		for i, c := range clients {
			if i == int(stopped.Load()) {
				continue
			}
			ctx, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
			_, err = c.Get(ctx, "x")
			cancel()
			if err == nil {
				return nil
			}
		}
		return err
	}
	rounds := max(1, *outageRounds/3)
	outage.LeaderStops(t, cluster, 2*time.Second, 10*time.Second, rounds, leader, read,
		openingOn(t, config(t, cluster.Members()...)))
}

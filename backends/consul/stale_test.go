package consul

import (
	"context"
	"fmt"
	"testing"

	"github.com/hashicorp/consul/api"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/proof/ample"
	"github.com/tenure-go/tenure/internal/proof/servers"
	"github.com/tenure-go/tenure/internal/proof/sqlfault"
)

// TestReadsNeedMajority reads from a server whose peers are stopped, before the server notices. The
// server's data may be outdated, so no read may return that data (rules O1 and I1). As a control,
// weaker read modes do return such data: the default mode on the leader, and the stale mode on
// another server.
func TestReadsNeedMajority(t *testing.T) {
	t.Parallel()
	slow := &servers.Options{Config: []string{"performance = { raft_multiplier = 5 }"}} // so that it loses the leader slowly
	members := servers.NewCluster(t, servers.Consul, 3, slow).Members()
	leader := leaderOf(t, members)
	// The order matters, because another server may be the leader afterwards.
	t.Run("leader", func(t *testing.T) { readsNeedMajority(t, members, leader, &api.QueryOptions{}) })
	t.Run("follower", func(t *testing.T) {
		readsNeedMajority(t, members, (leader+1)%3, &api.QueryOptions{AllowStale: true})
	})
}

// leaderOf returns the index of the leader.
func leaderOf(t *testing.T, members []*servers.Server) int {
	t.Helper()
	c, err := client(members[0])
	if err != nil {
		t.Fatal(err)
	}
	leader := -1
	again(t, "asking for the leader", func(context.Context) error {
		stats, err := c.Operator().RaftGetConfiguration(nil)
		if err != nil {
			return err
		}
		for _, p := range stats.Servers {
			if p.Leader {
				_, err = fmt.Sscanf(p.Node, "m%d", &leader)
				return err
			}
		}
		return fmt.Errorf("none of %d leads", len(stats.Servers))
	})
	return leader
}

func readsNeedMajority(t *testing.T, members []*servers.Server, at int, weak *api.QueryOptions) {
	c, err := client(members[at])
	if err != nil {
		t.Fatal(err)
	}
	namespace := fresh()
	var b *Backend
	again(t, "opening", func(ctx context.Context) (err error) {
		b, err = OpenClient(ctx, c, namespace, &Options{Create: true})
		return err
	})
	defer b.Close()
	s := sqlfault.Join(t, b, "n1")
	fences, _ := acquire(t, s, sqlfault.Claims(1))
	shard := fences[0].Shard
	for i, other := range members {
		if i == at {
			continue
		}
		if err := other.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := other.Cont(); err != nil {
				t.Error(err)
			}
		}()
	}
	control := func() {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), ample.Time)
		defer cancel()
		found, _, err := c.KV().List(namespace+"/", weak.WithContext(ctx))
		if err != nil || len(found) == 0 {
			t.Fatalf("the control: a read that asks nobody else: %d records, %v", len(found), err)
		}
	}
	control()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	reads := map[string]func() error{
		"Get":     func() error { _, err := b.Get(ctx, shard, "k"); return err },
		"ReadLog": func() error { _, err := b.ReadLog(ctx, shard, 0, 1); return err },
		"Observe": func() error { _, err := b.Observe(ctx, driver.ObserveQuery{}); return err },
	}
	type answer struct {
		read string
		err  error
	}
	answers := make(chan answer, len(reads))
	for name, read := range reads {
		go func() { answers <- answer{name, read()} }()
	}
	for range 20 { // each wait suffices for an answer that needs no other server
		control()
	}
	cancel()
	for range reads {
		if a := <-answers; a.err == nil {
			t.Errorf("%s was answered without a majority", a.read)
		}
	}
}

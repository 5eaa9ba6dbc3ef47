package zookeeper

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tenure-go/tenure/backends/kv"
	"github.com/tenure-go/tenure/internal/kvkeys"
	"github.com/tenure-go/tenure/internal/proof/ample"
	"github.com/tenure-go/tenure/internal/proof/servers"
)

// TestReadsNeedMajority reads from a server whose peers are stopped, before the server notices. The
// server's data may be outdated, so no read may return that data (rules O1 and I1). As a control, a
// bare read on the same connection does return that data.
func TestReadsNeedMajority(t *testing.T) {
	t.Parallel()
	members := servers.NewCluster(t, servers.ZooKeeper, 3,
		&servers.Options{Config: []string{"syncLimit = 30"}}).Members()
	leader := leaderOf(t, members)
	follower := members[0]
	if follower == leader {
		follower = members[1]
	}
	// The order matters, because another server may be the leader afterwards.
	t.Run("leader", func(t *testing.T) { readsNeedMajority(t, leader, members) })
	t.Run("follower", func(t *testing.T) { readsNeedMajority(t, follower, members) })
}

// A session's requests are answered in order, so each read and the control use separate
// connections.
func readsNeedMajority(t *testing.T, server *servers.Server, members []*servers.Server) {
	keys, err := kvkeys.New(t.Name())
	if err != nil {
		t.Fatal(err)
	}
	reads := map[string]func(context.Context, *store) error{
		"Get": func(ctx context.Context, s *store) error { _, err := s.Get(ctx, keys.Identity()); return err },
		"Range": func(ctx context.Context, s *store) error {
			_, err := s.Range(ctx, kv.Range{Prefix: keys.State()})
			return err
		},
		"Follow": func(ctx context.Context, s *store) error {
			err := s.Follow(ctx, []string{keys.ChangeLogs()}, func(*kv.Page) error { return errDelivered })
			if errors.Is(err, errDelivered) {
				return nil
			}
			return err
		},
	}
	stores := make(map[string]*store)
	for name := range reads {
		s := openOn(t, Options{}, server).store
		try(t, "a read", 5*time.Second, func(ctx context.Context) error {
			_, err := s.Get(ctx, keys.Identity())
			return err
		})
		stores[name] = s
	}
	s := openOn(t, Options{}, server).store
	bare, err := s.reads.link(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, other := range members {
		if other == server {
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
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	type answer struct {
		read string
		err  error
	}
	answers := make(chan answer, len(reads))
	for name, read := range reads {
		go func() { answers <- answer{name, read(ctx, stores[name])} }()
	}
	_, node, err := s.paths.node(keys.Identity())
	if err != nil {
		t.Fatal(err)
	}
	for range 10 {
		f, err := call(bounded(t, ample.Time), bare, func(c *zk.Conn) (found, error) { return get(c, node, &kv.Range{}) })
		if err != nil || !f.exists {
			t.Fatalf("the control: a read that asks nobody else: %v, %v", f.exists, err)
		}
	}
	time.Sleep(500 * time.Millisecond) // more than the control took
	cancel()
	for range reads {
		if a := <-answers; a.err == nil {
			t.Errorf("%s was answered without a majority", a.read)
		}
	}
}

var errDelivered = errors.New("delivered")

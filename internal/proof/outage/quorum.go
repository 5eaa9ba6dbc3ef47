// Package outage supports the backends' tests. It injects faults into a store's servers while core
// runs members on that store. Quorum stops a majority of the servers. A Cast silences one server or
// one member, without an error on either side. SystemConfig lets package system run its schedules
// on servers.
//
//	outage.Quorum(t, cluster, time.Second, func(i int) driver.Backend { ... })
package outage

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"testing"
	"time"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/proof/ample"
	"github.com/tenure-go/tenure/internal/proof/servers"
)

// Quorum makes all servers except one unavailable for ten TTLs. Quorum first stalls and then kills
// these servers. One Elector runs for each server throughout, and each Elector serves different
// shards. The open function opens the backend of Elector i, and closes it after the test. At the
// end of the ten TTLs, no member may be trusted. No member may be evicted. When the servers are
// back, each shard must belong to its previous owner, with a new token, because trust had lapsed
// (C7).
func Quorum(t *testing.T, cluster *servers.Cluster, ttl time.Duration, open func(i int) driver.Backend) {
	t.Helper()
	members := cluster.Members()
	g := &group{ttl: ttl}
	for i := range members {
		g.add(t, open(i), fmt.Sprint("n", i), fmt.Sprint("s", 2*i), fmt.Sprint("s", 2*i+1))
	}
	before := g.owners(t, nil)
	lost := members[:len(members)-1]
	for _, fault := range []struct {
		name       string
		lose, back func(*servers.Server) error
	}{
		{"stalled", func(s *servers.Server) error { return s.Stop(t.Context()) }, (*servers.Server).Cont},
		{"killed", func(s *servers.Server) error { return s.Kill(t.Context()) }, func(s *servers.Server) error {
			ctx, cancel := context.WithTimeout(t.Context(), ample.Time)
			defer cancel()
			return s.Restart(ctx)
		}},
	} {
		each(t, lost, fault.lose)
		select {
		case <-time.After(10 * ttl):
		case <-t.Context().Done():
		}
		for _, e := range g.electors {
			if v := e.View(); v.Trusted {
				t.Errorf("%s: the session of %s is trusted after ten TTLs without a majority", fault.name, v.Node)
			}
		}
		each(t, lost, fault.back)
		after := g.owners(t, before)
		if !maps.EqualFunc(after, before, func(a, b driver.Owner) bool { return a.Session == b.Session }) {
			t.Errorf("%s: owners are %v, and were %v", fault.name, after, before)
		}
		before = after
	}
}

func each(t *testing.T, all []*servers.Server, do func(*servers.Server) error) {
	t.Helper()
	done := make(chan error, len(all))
	for _, s := range all {
		go func() { done <- do(s) }()
	}
	var errs []error
	for range all {
		errs = append(errs, <-done)
	}
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

type group struct {
	ttl      time.Duration
	electors []*core.Elector
	shards   []string
}

// add runs an elector until the end of the test.
func (g *group) add(t *testing.T, b driver.Backend, node string, shards ...string) {
	t.Helper()
	e, err := core.NewElector(b, &core.Options{Logger: slog.New(slog.DiscardHandler), TTL: g.ttl, Node: node})
	if err != nil {
		t.Fatal(err)
	}
	err = e.Contend(func(ctx context.Context, _ *core.Lease) error {
		<-ctx.Done()
		return nil
	}, shards...)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- e.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", node, err)
		}
	})
	g.electors, g.shards = append(g.electors, e), append(g.shards, shards...)
}

// owners waits until every shard has an owner that uses it under a token greater than the former
// one.
func (g *group) owners(t *testing.T, before map[string]driver.Owner) map[string]driver.Owner {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), ample.Time)
	defer cancel()
	for view := g.electors[0].View(); ; {
		owners, used := map[string]driver.Owner{}, 0
		for _, s := range g.shards {
			if o, ok := view.Owner(s); ok && o.Session != "" && o.Token > before[s].Token {
				owners[s] = driver.Owner{Session: o.Session, Token: o.Token}
			}
		}
		for _, e := range g.electors {
			used += len(e.View().Leases)
		}
		if len(owners) == len(g.shards) && used == len(g.shards) {
			return owners
		}
		next, stop := context.WithTimeout(ctx, g.ttl/10)
		if v, err := g.electors[0].WaitView(next, view); err == nil {
			view = v
		}
		stop()
		if ctx.Err() != nil {
			t.Fatalf("owners with a new token are %v, they were %v, and %d leases are in use, want %d of each", owners,
				before, used, len(g.shards))
		}
	}
}

package etcd

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/tenure-go/tenure/conformance/faultproxy"
	"github.com/tenure-go/tenure/conformance/servers"
	"github.com/tenure-go/tenure/conformance/system"
)

// lane is a store for one seed at a time. The schedule restarts its members, of
// three one after the other so that a majority is left; it stalls and cuts off all.
type lane struct {
	cluster *servers.Cluster
	proxies []*faultproxy.Proxy
	struck  atomic.Int64
}

func (l *lane) restart(ctx context.Context) error {
	members := l.cluster.Members()
	return members[int(l.struck.Add(1))%len(members)].Restart(ctx)
}

// cut cuts the processes off from all members.
func (l *lane) cut(ctx context.Context) (func() error, error) {
	var heal []func() error
	all := func() (err error) {
		for _, h := range heal {
			if e := h(); e != nil {
				err = e
			}
		}
		return err
	}
	for _, p := range l.proxies {
		h, err := system.Cutting(p)(ctx)
		if err != nil {
			return nil, fmt.Errorf("%w (%v)", err, all())
		}
		heal = append(heal, h)
	}
	return all, nil
}

func systemConfig(t *testing.T, members, lanes int) system.Config {
	c := system.Config{Opener: Opener, Parallel: lanes}
	idle := make(chan *lane, lanes)
	for range lanes {
		l := &lane{cluster: servers.NewCluster(t, servers.Etcd, members, nil)}
		for _, addr := range l.cluster.Addrs() {
			proxy, err := faultproxy.New(addr, nil)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { proxy.Close() })
			l.proxies = append(l.proxies, proxy)
		}
		idle <- l
	}
	c.Store = func(t *testing.T, seed uint64) *system.Store {
		l := <-idle
		t.Cleanup(func() { idle <- l })
		var endpoints []string
		for _, p := range l.proxies {
			endpoints = append(endpoints, p.Addr())
		}
		return &system.Store{
			Options: map[string]any{"endpoints": endpoints, "namespace": fmt.Sprintf("system/seed%d", seed), "create": true},
			Restart: l.restart, Pause: system.Pausing(l.cluster.Stop, l.cluster.Cont), Cut: l.cut,
		}
	}
	return c
}

// TestSystem runs on one member. How many seeds: -args -system.seeds=100.
func TestSystem(t *testing.T) { system.Run(t, systemConfig(t, 1, system.Lanes())) }

// TestSystemCluster runs on three.
func TestSystemCluster(t *testing.T) {
	c := systemConfig(t, 3, 1)
	c.Seeds = 1
	system.Run(t, c)
}

// TestControl takes the fence away, and expects the damage.
func TestControl(t *testing.T) {
	c := systemConfig(t, 1, 1)
	c.Control, c.Seeds = true, 1
	system.Run(t, c)
}

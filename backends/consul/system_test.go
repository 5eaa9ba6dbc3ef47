package consul

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/tenure-go/tenure/conformance/faultproxy"
	"github.com/tenure-go/tenure/conformance/servers"
	"github.com/tenure-go/tenure/conformance/system"
)

// played is a store for one seed at a time, of which the processes reach the first
// server. The schedule restarts its servers, of three one after the other so that a
// majority is left; it stalls all.
type played struct {
	cluster *servers.Cluster
	proxy   *faultproxy.Proxy
	struck  atomic.Int64
}

func (l *played) restart(ctx context.Context) error {
	members := l.cluster.Members()
	return members[int(l.struck.Add(1))%len(members)].Restart(ctx)
}

// systemConfig runs the system suite on stores of its own, one for each seed that is
// played at a time. Each seed has a namespace of its own.
func systemConfig(t *testing.T, members, parallel int) system.Config {
	c := system.Config{Opener: Opener, Parallel: parallel}
	idle := make(chan *played, parallel)
	for range parallel {
		l := &played{cluster: servers.NewCluster(t, servers.Consul, members, nil)}
		var err error
		if l.proxy, err = faultproxy.New(l.cluster.Addrs()[0], nil); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.proxy.Close() })
		idle <- l
	}
	c.Store = func(t *testing.T, seed uint64) *system.Store {
		l := <-idle
		t.Cleanup(func() { idle <- l })
		return &system.Store{
			Options: map[string]any{"address": l.proxy.Addr(), "namespace": fmt.Sprintf("system/seed%d", seed), "create": true},
			Restart: l.restart,
			Pause:   system.Pausing(l.cluster.Stop, l.cluster.Cont),
			Cut:     system.Cutting(l.proxy),
		}
	}
	return c
}

// TestSystem runs on one server. How many seeds: -args -system.seeds=100.
func TestSystem(t *testing.T) { system.Run(t, systemConfig(t, 1, system.Lanes())) }

// TestSystemThree runs on three.
func TestSystemThree(t *testing.T) {
	c := systemConfig(t, 3, 1)
	c.Seeds = 1
	system.Run(t, c)
}

// TestControl takes the fence away, and expects the damage.
func TestControl(t *testing.T) {
	c := systemConfig(t, 1, system.Lanes())
	c.Control, c.Seeds = true, 1
	system.Run(t, c)
}

package zookeeper

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/tenure-go/tenure/conformance/faultproxy"
	"github.com/tenure-go/tenure/conformance/servers"
	"github.com/tenure-go/tenure/conformance/system"
)

// lane is an ensemble for one seed at a time. The schedule restarts its members, of
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
		for _, h := range slices.Backward(heal) {
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

func systemConfig(t *testing.T, members int) system.Config {
	c := system.Config{Opener: Opener, Parallel: system.Lanes()}
	if members > 1 {
		c.Parallel = 1
	}
	idle := make(chan *lane, c.Parallel)
	for range c.Parallel {
		l := &lane{cluster: servers.NewCluster(t, servers.ZooKeeper, members, nil)}
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
		var through []string
		for _, p := range l.proxies {
			through = append(through, p.Addr())
		}
		return &system.Store{
			Options: Settings{Servers: through, Namespace: fmt.Sprintf("system/seed%d", seed), Create: true},
			Restart: l.restart,
			Pause:   system.Pausing(l.cluster.Stop, l.cluster.Cont),
			Cut:     l.cut,
		}
	}
	return c
}

func TestSystem(t *testing.T) { system.Run(t, systemConfig(t, 1)) }

// TestSystemEnsemble plays on three members. -system.seeds plays more seeds.
func TestSystemEnsemble(t *testing.T) {
	c := systemConfig(t, 3)
	c.Seeds = 1
	system.Run(t, c)
}

// TestControl takes the fence away, and expects the damage.
func TestControl(t *testing.T) {
	c := systemConfig(t, 1)
	c.Control, c.Seeds = true, 1
	system.Run(t, c)
}

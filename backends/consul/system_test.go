package consul

import (
	"fmt"
	"testing"

	"github.com/tenure-go/tenure/conformance/faultproxy"
	"github.com/tenure-go/tenure/conformance/servers"
	"github.com/tenure-go/tenure/conformance/system"
)

// systemConfig runs the system suite on servers of its own, one for each seed that
// is played at a time, which the schedule kills, stalls and cuts off. Each seed has
// a namespace of its own.
func systemConfig(t *testing.T) system.Config {
	c := system.Config{Opener: Opener, Parallel: system.Lanes()}
	type lane struct {
		server *servers.Server
		proxy  *faultproxy.Proxy
	}
	idle := make(chan lane, c.Parallel)
	for range c.Parallel {
		server := servers.New(t, servers.Consul, nil)
		proxy, err := faultproxy.New(server.Addr(), nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { proxy.Close() })
		idle <- lane{server, proxy}
	}
	c.Store = func(t *testing.T, seed uint64) *system.Store {
		l := <-idle
		t.Cleanup(func() { idle <- l })
		return &system.Store{
			Options: map[string]any{"address": l.proxy.Addr(), "namespace": fmt.Sprintf("system/seed%d", seed), "create": true},
			Restart: l.server.Restart,
			Pause:   system.Pausing(l.server.Stop, l.server.Cont),
			Cut:     system.Cutting(l.proxy),
		}
	}
	return c
}

func TestSystem(t *testing.T) { system.Run(t, systemConfig(t)) }

// TestControl takes the fence away, and expects the damage.
func TestControl(t *testing.T) {
	c := systemConfig(t)
	c.Control, c.Seeds = true, 1
	system.Run(t, c)
}

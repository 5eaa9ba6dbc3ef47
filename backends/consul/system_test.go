package consul

import (
	"testing"

	"github.com/tenure-go/tenure/conformance/system"
	"github.com/tenure-go/tenure/internal/outage"
	"github.com/tenure-go/tenure/internal/servers"
)

// systemConfig has the members of a run reach the first server only, as they would
// their agent.
func systemConfig(t *testing.T, members, parallel int) system.Config {
	return outage.SystemConfig(t, Opener(), parallel, func() outage.Deployment {
		cluster := servers.NewCluster(t, servers.Consul, members, nil)
		return outage.Deployment{
			Servers: cluster.Members(),
			Addrs:   cluster.Addrs()[:1],
			Settings: func(through []string, namespace string) any {
				return map[string]any{"address": through[0], "namespace": namespace, "create": true}
			},
		}
	})
}

// TestSystem is run with more seeds as -args -system.seeds=100.
func TestSystem(t *testing.T) { system.Run(t, systemConfig(t, 1, system.Parallel())) }

// TestSystemThree runs on three.
func TestSystemThree(t *testing.T) {
	c := systemConfig(t, 3, 1)
	c.Seeds = 1
	system.Run(t, c)
}

// TestControl takes the fence away, and expects the damage.
func TestControl(t *testing.T) {
	c := systemConfig(t, 1, system.Parallel())
	c.Control, c.Seeds = true, 1
	system.Run(t, c)
}

// TestFresh: a member that has just come takes over within the TTL.
func TestFresh(t *testing.T) { outage.Fresh(t, systemConfig(t, 1, 1)) }

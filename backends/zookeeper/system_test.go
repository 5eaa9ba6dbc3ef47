package zookeeper

import (
	"testing"

	"github.com/tenure-go/tenure/conformance/system"
	"github.com/tenure-go/tenure/internal/outage"
	"github.com/tenure-go/tenure/internal/servers"
)

func systemConfig(t *testing.T, members, parallel int) system.Config {
	return outage.SystemConfig(t, Opener(), parallel, func() outage.Deployment {
		cluster := servers.NewCluster(t, servers.ZooKeeper, members, nil)
		return outage.Deployment{
			Servers: cluster.Members(),
			Addrs:   cluster.Addrs(),
			Settings: func(through []string, namespace string) any {
				return Settings{Servers: through, Namespace: namespace, Options: Options{Create: true}}
			},
		}
	})
}

// TestSystem is run with more seeds as -args -system.seeds=100.
func TestSystem(t *testing.T) { system.Run(t, systemConfig(t, 1, system.Parallel())) }

// TestSystemEnsemble runs on three.
func TestSystemEnsemble(t *testing.T) {
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

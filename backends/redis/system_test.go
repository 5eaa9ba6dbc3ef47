package redis

import (
	"testing"

	"github.com/tenure-go/tenure/conformance/system"
	"github.com/tenure-go/tenure/internal/outage"
	"github.com/tenure-go/tenure/internal/servers"
)

func systemConfig(t *testing.T, parallel int) system.Config {
	return outage.SystemConfig(t, Opener(), parallel, func() outage.Deployment {
		server := servers.New(t, servers.Redis, nil)
		return outage.Deployment{
			Servers: []*servers.Server{server},
			Addrs:   []string{server.Addr()},
			Settings: func(through []string, namespace string) any {
				return map[string]any{"addrs": through, "namespace": namespace, "create": true}
			},
		}
	})
}

// TestSystem is run with more seeds as -args -system.seeds=100.
func TestSystem(t *testing.T) { system.Run(t, systemConfig(t, system.Parallel())) }

// TestControl takes the fence away, and expects the damage.
func TestControl(t *testing.T) {
	c := systemConfig(t, system.Parallel())
	c.Control, c.Seeds = true, 1
	system.Run(t, c)
}

// TestFresh: a member that has just come takes over within the TTL.
func TestFresh(t *testing.T) { outage.Fresh(t, systemConfig(t, 1)) }

package consul

import (
	"testing"

	"github.com/tenure-go/tenure/internal/proof/outage"
	"github.com/tenure-go/tenure/internal/proof/servers"
)

func suite() *outage.Suite {
	return &outage.Suite{
		Kind: servers.Consul, Opener: Opener(), FirstOnly: true,
		Options: func(through []string, namespace string) any {
			return map[string]any{"address": through[0], "namespace": namespace, "create": true}
		},
	}
}

// TestSystem runs more seeds with -args -system.seeds=100.
func TestSystem(t *testing.T) { suite().Run(t) }

func TestSystemThree(t *testing.T) { suite().RunOnThree(t) }

func TestControl(t *testing.T) { suite().RunControl(t) }

// TestFresh: a member that has just joined takes over within the TTL.
func TestFresh(t *testing.T) { suite().Fresh(t) }

package zookeeper

import (
	"testing"

	"github.com/tenure-go/tenure/internal/proof/outage"
	"github.com/tenure-go/tenure/internal/proof/servers"
)

func suite() *outage.Suite {
	return &outage.Suite{
		Kind: servers.ZooKeeper, Opener: Opener(),
		Options: func(through []string, namespace string) any {
			return Settings{Servers: through, Namespace: namespace, Options: Options{Create: true}}
		},
	}
}

// TestSystem runs more seeds with -args -system.seeds=100.
func TestSystem(t *testing.T) { suite().Run(t) }

func TestSystemEnsemble(t *testing.T) { suite().RunOnThree(t) }

func TestControl(t *testing.T) { suite().RunControl(t) }

// TestFresh: a member that has just joined takes over within the TTL.
func TestFresh(t *testing.T) { suite().Fresh(t) }

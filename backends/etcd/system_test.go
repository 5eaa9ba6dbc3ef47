package etcd

import (
	"testing"

	"github.com/tenure-go/tenure/internal/proof/outage"
	"github.com/tenure-go/tenure/internal/proof/servers"
)

func systemSuite() *outage.Suite {
	return &outage.Suite{
		Kind: servers.Etcd, Opener: Opener(),
		Options: func(through []string, namespace string) any {
			return map[string]any{"endpoints": through, "namespace": namespace, "create": true}
		},
	}
}

// TestSystem runs more seeds with -args -system.seeds=100.
func TestSystem(t *testing.T) { systemSuite().Run(t) }

func TestSystemCluster(t *testing.T) { systemSuite().RunOnThree(t) }

func TestControl(t *testing.T) { systemSuite().RunControl(t) }

// TestFresh: a member that has just joined takes over within the TTL.
func TestFresh(t *testing.T) { systemSuite().Fresh(t) }

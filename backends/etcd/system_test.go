package etcd

import (
	"testing"

	"github.com/tenure-go/tenure/internal/proof/outage"
	"github.com/tenure-go/tenure/internal/proof/servers"
)

func suite() *outage.Suite {
	return &outage.Suite{
		Kind: servers.Etcd, Opener: Opener(),
		Options: func(through []string, namespace string) any {
			return map[string]any{"endpoints": through, "namespace": namespace, "create": true}
		},
	}
}

// TestSystem is run with more seeds as -args -system.seeds=100.
func TestSystem(t *testing.T) { suite().Run(t) }

func TestSystemCluster(t *testing.T) { suite().RunOnThree(t) }

func TestControl(t *testing.T) { suite().RunControl(t) }

// TestFresh: a member that has just come takes over within the TTL.
func TestFresh(t *testing.T) { suite().Fresh(t) }

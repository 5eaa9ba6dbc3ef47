package mysql

import (
	"testing"

	"github.com/tenure-go/tenure/internal/proof/outage"
	"github.com/tenure-go/tenure/internal/proof/system"
)

// TestSystem runs more seeds with -args -system.seeds=100.
func TestSystem(t *testing.T) { system.Run(t, setup.System(t)) }

// TestControl removes the fence, and expects damage.
func TestControl(t *testing.T) {
	c := setup.System(t)
	c.Control, c.Seeds = true, 1
	system.Run(t, c)
}

// TestFresh: a member that has just joined takes over within the TTL.
func TestFresh(t *testing.T) { outage.Fresh(t, setup.System(t)) }

// TestIdentityTampered: overwriting or removing the identity stops the members.
func TestIdentityTampered(t *testing.T) {
	t.Parallel()
	setup.IdentityTampered(t)
}

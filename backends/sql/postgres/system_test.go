package postgres

import (
	"testing"

	"github.com/tenure-go/tenure/conformance/system"
	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/outage"
	"github.com/tenure-go/tenure/internal/servers"
	"github.com/tenure-go/tenure/internal/sqlfault"
)

func systemConfig(t *testing.T) system.Config {
	return outage.Lanes(t, Opener(), system.Lanes(), func() outage.Lane {
		server := servers.New(t, servers.Postgres, nil)
		dsn := server.Database(t)
		if err := Migrate(t.Context(), dsn.Reveal(), nil); err != nil {
			t.Fatal(err)
		}
		return outage.Lane{
			Servers: []*servers.Server{server},
			Addrs:   []string{dsn.Addr()},
			Settings: func(through []string, namespace string) any {
				// Not Settings, which would hide the password.
				return map[string]any{"dsn": dsn.At(through[0]).Reveal(), "namespace": namespace, "create": true}
			},
		}
	})
}

// TestSystem is run with more seeds as -args -system.seeds=100.
func TestSystem(t *testing.T) { system.Run(t, systemConfig(t)) }

// TestControl takes the fence away, and expects the damage.
func TestControl(t *testing.T) {
	c := systemConfig(t)
	c.Control, c.Seeds = true, 1
	system.Run(t, c)
}

// TestFresh: a member that has just come takes over within the TTL.
func TestFresh(t *testing.T) { outage.Fresh(t, systemConfig(t)) }

// TestIdentityTampered: whoever overwrites or removes the identity stops the members.
func TestIdentityTampered(t *testing.T) {
	t.Parallel()
	dsn := pool.Get(t, servers.Postgres, nil).Database(t)
	if err := Migrate(t.Context(), dsn.Reveal(), nil); err != nil {
		t.Fatal(err)
	}
	db := openDB(t, dsn)
	outage.Identity(t, func(t *testing.T, namespace string) driver.Backend {
		b, err := Open(t.Context(), dsn.Reveal(), namespace, &Options{Create: true})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { b.Close() })
		return b
	}, sqlfault.TamperIdentity(db, db))
}

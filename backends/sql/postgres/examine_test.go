package postgres

import (
	"slices"
	"strings"
	"testing"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/proof/servers"
	"github.com/tenure-go/tenure/internal/proof/sqlfault"
)

func named(findings []driver.Finding, name string) driver.Finding {
	i := slices.IndexFunc(findings, func(f driver.Finding) bool { return f.Name == name })
	if i < 0 {
		return driver.Finding{}
	}
	return findings[i]
}

// TestExamine: there is a finding for the tables' owner, and none for the recipe's run-time role.
// There is one for each privilege that this role lacks.
func TestExamine(t *testing.T) {
	t.Parallel()
	server := pool.Get(t, servers.Postgres, nil)
	dsn := server.Database(t)
	app := restricted(t, server, dsn, nil)
	examine := func(dsn servers.DSN) []driver.Finding {
		t.Helper()
		b, err := Open(t.Context(), dsn.Reveal(), "app", &Options{Create: true})
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close()
		found, err := b.Examine(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if c := named(found, "clock"); !strings.Contains(c.Value, "this machine's, within") || c.Remedy != "" {
			t.Errorf("clock: got %+v", c)
		}
		return found
	}
	if f := named(examine(dsn), "role"); !strings.Contains(f.Value, "owns the tables") || f.Remedy == "" {
		t.Errorf("as the owner: got %+v", f)
	}
	found := examine(app)
	if f := named(found, "role"); f.Value != app.User() || f.Remedy != "" {
		t.Errorf("as the run-time role: got %+v", f)
	}
	if f := named(found, "missing rights"); f.Value != "" {
		t.Errorf("as the run-time role: got %+v", f)
	}
	admin := setup.DB(t, server.Admin().Database(dsn.Name()))
	sqlfault.Exec(t, admin, "REVOKE DELETE ON tenure_nodes FROM "+app.User()+"; REVOKE UPDATE (version) ON tenure_beats FROM "+app.User())
	if f := named(examine(app), "missing rights"); f.Remedy == "" ||
		f.Value != "UPDATE on tenure's table beats, DELETE on tenure's table nodes" && f.Value != "DELETE on tenure's table nodes, UPDATE on tenure's table beats" {
		t.Errorf("without two rights: got %+v", f)
	}
}

// TestExamined: each setting that makes a crash lose writes has a remedy, and no other setting has
// one.
func TestExamined(t *testing.T) {
	t.Parallel()
	good := examined{role: "app", fsync: "on", pages: "on", synchronous: "on"}
	for want, change := range map[string]func(x *examined){
		"":                          func(*examined) {},
		"fsync":                     func(x *examined) { x.fsync = "off" },
		"full_page_writes":          func(x *examined) { x.pages = "off" },
		"synchronous_commit":        func(x *examined) { x.synchronous = "off" },
		"synchronous_standby_names": func(x *examined) { x.synchronous, x.standbys = "local", "b" },
		"role":                      func(x *examined) { x.super = true },
	} {
		x := good
		change(&x)
		var got []string
		for _, f := range x.findings() {
			if f.Remedy != "" {
				got = append(got, f.Name)
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("got remedies for %q, want %q", got, want)
		}
	}
}

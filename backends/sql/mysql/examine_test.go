package mysql

import (
	"slices"
	"strings"
	"testing"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/proof/servers"
)

// TestExamine: there is a finding for a user with privileges beyond the tables, but none for the
// recipe's run-time user.
func TestExamine(t *testing.T) {
	t.Parallel()
	server := pool.Get(t, servers.MariaDB, nil)
	dsn := server.Database(t)
	app := restricted(t, server, dsn)
	for _, c := range []struct {
		dsn  servers.DSN
		more bool
	}{{dsn, true}, {app, false}} {
		b, err := Open(t.Context(), c.dsn.Reveal(), "app", &Options{Create: true})
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close()
		found, err := b.Examine(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(found, func(f driver.Finding) bool { return f.Name == "user" })
		if i < 0 || !strings.HasPrefix(found[i].Value, c.dsn.User()+"@") || (found[i].Remedy != "") != c.more {
			t.Errorf("as %s: got %+v", c.dsn.User(), found)
		}
		if clock := found[len(found)-1]; clock.Name != "clock" || !strings.Contains(clock.Value, "this machine's, within") {
			t.Errorf("as %s: got %+v", c.dsn.User(), clock)
		}
	}
}

// TestExamined: each setting that makes a crash lose writes has a remedy, and no other setting has
// one.
func TestExamined(t *testing.T) {
	t.Parallel()
	good := examined{user: "app@%", doublewrite: "1", flush: 1}
	for want, change := range map[string]func(x *examined){
		"":                               func(x *examined) { x.sync = 0 },
		"innodb_flush_log_at_trx_commit": func(x *examined) { x.flush = 2 },
		"innodb_doublewrite":             func(x *examined) { x.doublewrite = "OFF" },
		"sync_binlog":                    func(x *examined) { x.binlog, x.sync = true, 0 },
		"user":                           func(x *examined) { x.global = "SUPER, FILE" },
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

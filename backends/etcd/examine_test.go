package etcd

import (
	"slices"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/proof/servers"
)

// examined checks a backend's finding about the user, and the number of findings before it.
func examined(t *testing.T, what string, b *Backend, others int, name, value, remedy string) {
	t.Helper()
	found, err := b.Examine(t.Context())
	if err != nil || len(found) != others+1 {
		t.Fatalf("%s: got %+v, %v, want %d findings", what, found, err, others+1)
	}
	if f := found[others]; f.Name != name || f.Value != value || !strings.Contains(f.Remedy, remedy) ||
		(remedy == "") != (f.Remedy == "") {
		t.Errorf("%s: got %+v, want %s %q and the remedy %q", what, f, name, value, remedy)
	}
	voters := slices.IndexFunc(found, func(f driver.Finding) bool { return f.Name == "voting members" })
	alarms := slices.IndexFunc(found, func(f driver.Finding) bool { return f.Name == "alarms" })
	if others > 0 && (voters < 0 || found[voters].Value != "1" || found[voters].Remedy == "" || alarms < 0 ||
		found[alarms].Value != "none" || found[alarms].Remedy != "") {
		t.Errorf("%s: got %+v, want one voting member, three to be advised, and no alarm", what, found)
	}
}

// TestExamine examines a server as each kind of user. Only users without a name may not query
// members and alarms.
func TestExamine(t *testing.T) {
	t.Parallel()
	server := servers.New(t, servers.Etcd, &servers.Options{NoSync: true, Config: []string{"bcrypt-cost = 4"}})
	open := func(c clientv3.Config) *Backend {
		t.Helper()
		b, err := Open(t.Context(), c, "orders", &Options{Create: true})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { b.Close() })
		return b
	}
	nobody := open(config(t, server))
	examined(t, "without authentication", nobody, 2, "authentication", "off", "docs/backends/etcd.md")
	root, user := enableAuth(t, server, "readwrite", "orders/", clientv3.GetPrefixRangeEnd("orders/"))
	examined(t, "without a user", nobody, 0, "user", "none", "set username and password")
	examined(t, "as root", open(root), 2, "user", `"root" with the roles ["root"]`, "it may do anything")
	app := open(user)
	examined(t, "as the run-time user", app, 2, "user", `"app" with the roles ["app"]`, "")
	admin := newClient(t, root)
	if _, err := admin.UserRevokeRole(t.Context(), "app", "app"); err != nil {
		t.Fatal(err)
	}
	examined(t, "without a role", app, 2, "user", `"app" with the roles []`, "grant it the role")
	if _, err := admin.UserDelete(t.Context(), "app"); err != nil {
		t.Fatal(err)
	}
	if found, err := app.Examine(t.Context()); !denied(err) {
		t.Errorf("as a user that was deleted: got %+v, %v, want a refusal", found, err)
	}
}

// TestExamineCertificate: the user is the name in the client's certificate.
func TestExamineCertificate(t *testing.T) {
	t.Parallel()
	server := servers.New(t, servers.Etcd, &servers.Options{TLS: servers.TLSMutual, NoSync: true,
		Config: []string{"bcrypt-cost = 4"}})
	b := openOn(t, config(t, server), Options{})
	enableAuth(t, server, "readwrite", "a", "b")
	examined(t, "by a certificate", b, 2, "user", "the name in the certificate", "")
}

package consul

import (
	"strings"
	"testing"

	"github.com/hashicorp/consul/api"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/proof/servers"
)

// TestExamine examines servers with and without ACLs, using each kind of token.
func TestExamine(t *testing.T) {
	t.Parallel()
	check := func(what string, b *Backend, name, value, remedy string) {
		t.Helper()
		found, err := b.Examine(t.Context())
		if err != nil || len(found) != 2 {
			t.Fatalf("%s: got %+v, %v, want the servers and the rights", what, found, err)
		}
		if f := found[0]; f.Name != "servers" || f.Value != "1" || !strings.Contains(f.Remedy, "three") {
			t.Errorf("%s: got %+v, want one server, and three to be advised", what, f)
		}
		f := found[1]
		if f.Name != name || !strings.Contains(f.Value, value) || !strings.Contains(f.Remedy, remedy) || (remedy == "") != (f.Remedy == "") {
			t.Errorf("%s: got %+v, want %s %q and the remedy %q", what, f, name, value, remedy)
		}
	}
	open := func(server *servers.Server, token, namespace string) *Backend {
		t.Helper()
		b, err := Open(t.Context(), Config{Address: server.Addr(), Token: driver.Secret(token)}, namespace, &Options{Create: true})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { b.Close() })
		return b
	}
	check("without ACLs", open(servers.New(t, servers.Consul, nil), "", "app"), "ACLs", "off", "docs/backends/consul.md")

	server, admin := guarded(t)
	root, err := OpenClient(t.Context(), admin, "app", &Options{Create: true})
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	check("the management token", root, "token", "global-management", "it may do anything")
	token := runTime(t, admin, "app")
	b, err := Open(t.Context(), Config{Address: server.Addr(), Token: driver.Secret(token)}, "app", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	check("the policy of the page", b, "token", "with the policies", "")
	self, _, err := admin.ACL().TokenReadSelf(&api.QueryOptions{Token: token})
	if err == nil {
		_, err = admin.ACL().TokenDelete(self.AccessorID, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	check("a token that was deleted", b, "token", "deleted", "docs/backends/consul.md")

	trusting := servers.New(t, servers.Consul, &servers.Options{Config: []string{
		`acl = { enabled = true, default_policy = "allow" }`,
	}})
	check("no token", open(trusting, "", "app"), "token", "none", `default_policy = "deny"`)
}

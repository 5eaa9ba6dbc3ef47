package etcd

import (
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/tenure-go/tenure/internal/proof/servers"
)

// enableAuth adds a user with permissions on one range of keys, and turns authentication on. It
// returns the configurations of root and of that user.
func enableAuth(t testing.TB, server *servers.Server, right, from, end string) (root, user clientv3.Config) {
	t.Helper()
	c := config(t, server)
	admin := newClient(t, c)
	ctx := t.Context()
	kind := clientv3.PermissionType(clientv3.PermReadWrite)
	if right == "read" {
		kind = clientv3.PermissionType(clientv3.PermRead)
	}
	must := func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(admin.RoleAdd(ctx, "root"))
	must(admin.UserAdd(ctx, "root", "root-password"))
	must(admin.UserGrantRole(ctx, "root", "root"))
	must(admin.RoleAdd(ctx, "app"))
	must(admin.RoleGrantPermission(ctx, "app", from, end, kind))
	must(admin.UserAdd(ctx, "app", "app-password"))
	must(admin.UserGrantRole(ctx, "app", "app"))
	must(admin.AuthEnable(ctx))
	root, user = c, c
	root.Username, root.Password = "root", "root-password"
	user.Username, user.Password = "app", "app-password"
	return root, user
}

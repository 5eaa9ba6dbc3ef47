package zookeeper

import (
	"strings"
	"testing"

	"github.com/go-zookeeper/zk"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/proof/outage"
	"github.com/tenure-go/tenure/internal/proof/servers"
)

// TestIdentityTampered: overwriting or removing the identity stops the members.
func TestIdentityTampered(t *testing.T) {
	t.Parallel()
	server := pool.Get(t, servers.ZooKeeper, nil)
	admin := client(t, server)
	user := server.User()
	// Only the user that creates a directory may write there.
	root := func(namespace string) string { return "/" + strings.ReplaceAll(namespace, "/", "-") }
	node := func(namespace string) string { return root(namespace) + "/" + namespace + "/!id" }
	outage.Identity(t, func(t *testing.T, namespace string) driver.Backend {
		o := Options{Root: root(namespace), Create: true}
		if strings.HasSuffix(namespace, "administrator") {
			o.User, o.Password, o.Admins = user.User(), driver.Secret(user.Password()), []string{"digest:boss:x"}
		}
		b, err := Open(t.Context(), addrs([]*servers.Server{server}), namespace, &o)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { b.Close() })
		return b
	}, map[string]func(string) error{
		"garbage": func(namespace string) error {
			_, err := admin.Set(node(namespace), []byte("garbage"), -1)
			return err
		},
		"administrator": func(namespace string) error {
			_, err := admin.Set(node(namespace), []byte(`{"v":1,"id":"ANOTHER","base":0}`), -1)
			return err
		},
		"same": func(namespace string) error {
			value, _, err := admin.Get(node(namespace))
			if err == nil {
				_, err = admin.Set(node(namespace), value, -1)
			}
			return err
		},
		"removed": func(namespace string) error { return admin.Delete(node(namespace), -1) },
		"remade": func(namespace string) error {
			value, _, err := admin.Get(node(namespace))
			if err == nil {
				err = admin.Delete(node(namespace), -1)
			}
			if err == nil {
				_, err = admin.Create(node(namespace), value, 0, zk.WorldACL(zk.PermAll))
			}
			return err
		},
	})
}

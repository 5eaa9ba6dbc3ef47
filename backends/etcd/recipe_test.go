package etcd

import (
	"bufio"
	"errors"
	"os"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/proof/outage"
	"github.com/tenure-go/tenure/internal/proof/servers"
	"github.com/tenure-go/tenure/internal/proof/sqlfault"
)

// runRecipe has the same effect as the documentation's etcdctl commands.
func runRecipe(t *testing.T, admin *clientv3.Client) (user, password string) {
	t.Helper()
	page, err := os.ReadFile("../../docs/backends/etcd.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, ok := strings.Cut(string(page), "<!-- recipe -->\n```sh\n")
	text, _, closed := strings.Cut(text, "```")
	if !ok || !closed {
		t.Fatal("the page has no recipe")
	}
	ctx := t.Context()
	for lines := bufio.NewScanner(strings.NewReader(text)); lines.Scan(); {
		w := append(strings.Fields(strings.ReplaceAll(lines.Text(), "'", "")), "", "", "", "")
		var err error
		switch strings.Join(w[:3], " ") {
		case "etcdctl role add":
			_, err = admin.RoleAdd(ctx, w[3])
		case "etcdctl role grant-permission":
			kind := map[string]clientv3.PermissionType{"read": clientv3.PermissionType(clientv3.PermRead),
				"readwrite": clientv3.PermissionType(clientv3.PermReadWrite)}
			right, known := kind[w[4]]
			if !known {
				t.Fatalf("right %q", w[4])
			}
			_, err = admin.RoleGrantPermission(ctx, w[3], w[5], w[6], right)
		case "etcdctl user add":
			user, password, _ = strings.Cut(w[3], ":")
			_, err = admin.UserAdd(ctx, user, password)
		case "etcdctl user grant-role":
			_, err = admin.UserGrantRole(ctx, w[3], w[4])
		default:
			t.Fatalf("unknown command %q", lines.Text())
		}
		if err != nil {
			t.Fatal(lines.Text(), err)
		}
	}
	return user, password
}

// TestRecipe uses a namespace as the documentation's user. This user may do everything that the
// driver does, but may not write the identity or another namespace.
func TestRecipe(t *testing.T) {
	t.Parallel()
	server := servers.New(t, servers.Etcd, &servers.Options{NoSync: true, Config: []string{"bcrypt-cost = 4"}})
	root, user := enableAuth(t, server, "read", "nothing", "")
	admin := newClient(t, root)
	user.Username, user.Password = runRecipe(t, admin)
	refused := func(namespace string, o *Options) {
		t.Helper()
		b, err := Open(t.Context(), user, namespace, o)
		if err == nil {
			b.Close()
			t.Errorf("namespace %q was opened", namespace)
		} else if !denied(err) {
			t.Errorf("namespace %q: %v, want a refusal of rights", namespace, err)
		}
	}
	refused("orders", &Options{Create: true})
	refused("orders2", nil)
	created, err := Open(t.Context(), root, "orders", &Options{Create: true})
	if err != nil {
		t.Fatal(err)
	}
	defer created.Close()
	b, err := Open(t.Context(), user, "orders", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	s, other := sqlfault.Join(t, b, "n1"), sqlfault.Join(t, b, "n2")
	granted, _ := sqlfault.Acquire(t, s, sqlfault.Claims(200))
	f := granted[0].Fence
	sqlfault.Commit(t, s, sqlfault.AppendOf(f, 1, []byte("a"), []byte("b")))
	sqlfault.Commit(t, s, driver.Write{Fence: f, Number: 2, Nonce: 2, Ops: []driver.Op{
		{Kind: driver.OpPut, Key: "k", Value: []byte("v"), IfVersion: driver.Absent}, {Kind: driver.OpTrim, Through: 1},
	}})
	if err := s.Beat(t.Context()); err != nil {
		t.Error(err)
	}
	moved, err := s.Transfer(t.Context(), []driver.Transfer{{Fence: f, To: other.ID()}})
	if err != nil || moved[0].Err != nil {
		t.Error(moved, err)
	}
	view, err := b.Observe(t.Context(), driver.ObserveQuery{Beats: []driver.Beat{{Session: s.ID()}}})
	if err != nil || len(view.Beats) != 1 {
		t.Fatal(view, err)
	}
	if res, err := other.Evict(t.Context(),
		[]driver.Suspect{{Session: s.ID(), Version: view.Beats[0].Version}}); err != nil || !res[0].Evicted {
		t.Error(res, err)
	}
	if err := errors.Join(other.Release(t.Context(), []driver.Fence{moved[0].Fence}),
		other.Close(t.Context())); err != nil {
		t.Error(err)
	}
	below, err := Open(t.Context(), root, "orders/eu", &Options{Create: true})
	if err != nil {
		t.Fatal(err)
	}
	defer below.Close()
	client := newClient(t, user)
	for what, write := range map[string]func() error{
		"write the identity": func() error {
			_, err := client.Put(t.Context(), "orders/!id", "mine")
			return err
		},
		"delete the identity": func() error {
			_, err := client.Delete(t.Context(), "orders/!id")
			return err
		},
		"write the incarnation": func() error {
			_, err := client.Put(t.Context(), "orders/!incarnation", "1 mine")
			return err
		},
		"delete the namespace": func() error {
			_, err := client.Delete(t.Context(), "orders/", clientv3.WithPrefix())
			return err
		},
		"delete all that is Tenure's": func() error {
			_, err := client.Delete(t.Context(), "orders/!", clientv3.WithPrefix())
			return err
		},
		"write an identity further below": func() error {
			_, err := client.Put(t.Context(), "orders/eu/!id", "mine")
			return err
		},
		"write a shard further below": func() error {
			_, err := client.Put(t.Context(), "orders/eu/!state/shard/s", "mine")
			return err
		},
		"read further below": func() error {
			_, err := client.Get(t.Context(), "orders/eu/!id")
			return err
		},
		"write elsewhere": func() error {
			_, err := client.Put(t.Context(), "orders2/!id", "mine")
			return err
		},
		"write beside": func() error {
			_, err := client.Put(t.Context(), "orders/app", "mine")
			return err
		},
	} {
		if err := write(); !denied(err) {
			t.Errorf("%s: %v, want a refusal", what, err)
		}
	}
	// The documentation says that this is possible.
	last, _ := sqlfault.Acquire(t, sqlfault.Join(t, b, "n3"), []driver.Claim{{Shard: "another"}})
	if res, err := client.Delete(t.Context(), "orders/!state/", clientv3.WithPrefix()); err != nil ||
		res.Deleted < 200 {
		t.Errorf("deleting all shards and members: %+v, %v", res, err)
	}
	if anew, _ := sqlfault.Acquire(t, sqlfault.Join(t, b, "n4"),
		[]driver.Claim{{Shard: "another"}}); anew[0].Fence.Token <= last[0].Fence.Token {
		t.Errorf("token %d after %d, when the record was removed", anew[0].Fence.Token, last[0].Fence.Token)
	}
}

// TestIdentityTampered: overwriting or removing the identity stops the members.
func TestIdentityTampered(t *testing.T) {
	t.Parallel()
	c := config(t, pool.Get(t, servers.Etcd, nil))
	client := newClient(t, c)
	put := func(value string) func(string) error {
		return func(namespace string) error {
			_, err := client.Put(t.Context(), namespace+"/!id", value)
			return err
		}
	}
	outage.Identity(t, func(t *testing.T, namespace string) driver.Backend {
		b, err := Open(t.Context(), c, namespace, &Options{Create: true})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { b.Close() })
		return b
	}, map[string]func(string) error{
		"garbage": put("garbage"),
		"another": put(`{"v":1,"id":"ANOTHER","base":0}`),
		"removed": func(namespace string) error {
			_, err := client.Delete(t.Context(), namespace+"/!id")
			return err
		},
	})
}

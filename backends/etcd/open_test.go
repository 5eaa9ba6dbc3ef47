package etcd

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/proof/ample"
	"github.com/tenure-go/tenure/internal/proof/servers"
	"github.com/tenure-go/tenure/internal/proof/sqlfault"
)

// refusedOpen fails unless opening a namespace is refused before its context ends.
func refusedOpen(t *testing.T, c clientv3.Config, o *Options, want ...string) error {
	t.Helper()
	ctx := bounded(t, ample.Time)
	err := refusedWithin(ctx, t, c, o, want...)
	if ctx.Err() != nil {
		t.Errorf("refused by the deadline only: %v", err)
	}
	return err
}

func refusedWithin(ctx context.Context, t *testing.T, c clientv3.Config, o *Options, want ...string) error {
	t.Helper()
	b, err := Open(ctx, c, "refused", o)
	if err == nil {
		b.Close()
		t.Fatalf("opened, want an error with %q", want)
	}
	for _, w := range want {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("got %v, want %q in it", err, w)
		}
	}
	for _, secret := range []string{"root-password", "app-password", "wrong-secret"} {
		if strings.Contains(fmt.Sprintf("%v %+v", err, err), secret) {
			t.Errorf("the password stands in: %v", err)
		}
	}
	return err
}

func TestOpenRefuses(t *testing.T) {
	t.Parallel()
	server := pool.Get(t, servers.Etcd, nil)
	good := config(t, server)
	with := func(change func(*clientv3.Config)) clientv3.Config {
		c := good
		change(&c)
		return c
	}
	t.Run("nobody there", func(t *testing.T) {
		t.Parallel()
		c := with(func(c *clientv3.Config) { c.Endpoints = []string{"127.0.0.1:1"} })
		refusedOpen(t, c, nil, "connection refused")
		c.Username, c.Password = "app", "wrong-secret"
		refusedOpen(t, c, nil, "connection refused", "127.0.0.1:1")
	})
	t.Run("not etcd", func(t *testing.T) {
		t.Parallel()
		refusedOpen(t, with(func(c *clientv3.Config) { c.TLS = &tls.Config{ServerName: "127.0.0.1"} }), nil,
			"handshake")
	})
	t.Run("new store", func(t *testing.T) {
		t.Parallel()
		if err := refusedOpen(t, good, nil, "Create"); !errors.Is(err, driver.ErrStoreChanged) {
			t.Errorf("got %v, want ErrStoreChanged", err)
		}
	})
	t.Run("plaintext", func(t *testing.T) {
		t.Parallel()
		for _, endpoint := range []string{"etcd.example:2379", "http://10.0.0.1:2379", "etcd.example"} {
			refusedOpen(t, clientv3.Config{Endpoints: []string{endpoint}}, nil, "https")
		}
		refusedOpen(t, clientv3.Config{Endpoints: []string{"https://etcd.example:2379"},
			TLS: &tls.Config{InsecureSkipVerify: true}}, nil, "Insecure")
		refusedOpen(t, clientv3.Config{Endpoints: []string{"http://etcd.example:2379"}, TLS: &tls.Config{}}, nil,
			"https")
	})
	t.Run("mixed schemes", func(t *testing.T) {
		t.Parallel()
		for _, endpoints := range [][]string{
			{"https://etcd-0.example:2379", "http://etcd-1.example:2379"},
			{"https://etcd-0.example:2379", "http://127.0.0.1:1"},
			{"HTTPS://etcd-0.example:2379", "HTTP://etcd-1.example:2379"},
			{"http://127.0.0.1:1", "https://etcd-1.example:2379"},
			{"etcd-0.example:2379", "http://etcd-1.example:2379"},
			{"http://127.0.0.1:1", "etcd-1.example:2379"},
		} {
			c := clientv3.Config{Endpoints: endpoints, TLS: &tls.Config{}, Username: "app", Password: "app-password"}
			if err := refusedOpen(t, c, nil, "schemes", "number 2"); !errors.Is(err, driver.ErrInvalid) {
				t.Errorf("got %v, want ErrInvalid", err)
			}
		}
		refusedOpen(t, clientv3.Config{Endpoints: []string{"https://etcd-0.example:2379", "etcd-1.example:2379"}}, nil,
			"schemes")
		same := clientv3.Config{Endpoints: []string{"HTTPS://etcd-0.example:2379", "https://10.0.0.1:2379",
			"etcd-1.example:2379"}, TLS: &tls.Config{}}
		if err := checkTransport(&same); err != nil {
			t.Errorf("https for all: %v", err)
		}
	})
	t.Run("user in an endpoint", func(t *testing.T) {
		t.Parallel()
		for _, endpoint := range []string{"http://root:root-password@etcd.example:2379",
			"root:root-password@127.0.0.1:1", "https://root:root-password/@127.0.0.1:1"} {
			for _, o := range []*Options{nil, {Insecure: true}} {
				c := clientv3.Config{Endpoints: []string{"https://127.0.0.1:1", endpoint}}
				if err := refusedOpen(t, c, o, "endpoint 2", "Username"); !errors.Is(err, driver.ErrInvalid) {
					t.Errorf("got %v, want ErrInvalid", err)
				}
			}
		}
		refusedOpen(t, clientv3.Config{Endpoints: []string{"unix:@" + t.Name()}}, nil, "connect")
	})
	t.Run("options", func(t *testing.T) {
		t.Parallel()
		refusedOpen(t, good, &Options{MaxTxnOps: 200}, "max-txn-ops", "200")
		refusedOpen(t, good, &Options{MaxTxnOps: 3}, "use 16 to")
		refusedOpen(t, good, &Options{MaxRequestBytes: 1}, "64 KiB")
		refusedOpen(t, clientv3.Config{}, nil, "endpoint")
	})
	t.Run("names", func(t *testing.T) {
		t.Parallel()
		if _, err := Open(t.Context(), good, "a//b", nil); !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("got %v, want ErrInvalid", err)
		}
	})
}

func TestOpenWithPassword(t *testing.T) {
	t.Parallel()
	server := servers.New(t, servers.Etcd, &servers.Options{NoSync: true, Config: []string{"bcrypt-cost = 4"}})
	_, user := enableAuth(t, server, "read", "refused/", "refused0")
	c := user
	c.Password = "wrong-secret"
	refusedOpen(t, c, nil, "authentication failed")
	refusedOpen(t, user, &Options{Create: true}, "docs/backends/etcd.md", "permission denied")
	c.Username, c.Password = "", ""
	refusedOpen(t, c, nil, "docs/backends/etcd.md", "user name is empty")
}

func TestTLS(t *testing.T) {
	t.Parallel()
	for _, level := range []servers.TLS{servers.TLSServer, servers.TLSMutual} {
		t.Run(fmt.Sprint(level), func(t *testing.T) {
			t.Parallel()
			server := servers.New(t, servers.Etcd, &servers.Options{TLS: level, NoSync: true})
			c := config(t, server)
			sqlfault.Join(t, openOn(t, c, Options{}), "n1")

			wrong := c
			wrong.TLS = &tls.Config{ServerName: "127.0.0.1"}
			refusedOpen(t, wrong, nil, "certificate")
			wrong.TLS = c.TLS.Clone()
			wrong.TLS.ServerName = "etcd.example"
			refusedOpen(t, wrong, nil, "etcd.example")
			if level == servers.TLSMutual {
				wrong.TLS = c.TLS.Clone()
				wrong.TLS.Certificates = nil
				refusedOpen(t, wrong, nil)
			}
			wrong.TLS = nil
			refusedOpen(t, wrong, nil)

			// Open the same namespace from a configuration.
			cert, key := server.ClientFiles()
			settings, err := json.Marshal(map[string]any{
				"endpoints": []string{"https://" + server.Addr()}, "ca_file": server.CAFile(), "cert_file": cert,
				"key_file":  key,
				"namespace": "configured", "create": true,
			})
			if err != nil {
				t.Fatal(err)
			}
			b, err := Opener().Open(t.Context(), func(into any) error { return json.Unmarshal(settings, into) })
			if err != nil {
				t.Fatal(err)
			}
			if err := b.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestOperationLimit: opening finds and keeps a server's lower limit. A limit that is lowered later
// is not mistaken for a failure.
func TestOperationLimit(t *testing.T) {
	t.Parallel()
	server := servers.New(t, servers.Etcd, &servers.Options{NoSync: true, Config: []string{"max-txn-ops = 40"}})
	c := config(t, server)
	b := openOn(t, c, Options{})
	limits := b.Info().Limits
	if limits.WriteOps != 32-3 {
		t.Errorf("got %d operations in a write, want 29", limits.WriteOps)
	}
	s := sqlfault.Join(t, b, "n1")
	granted, _ := sqlfault.Acquire(t, s, sqlfault.Claims(200))
	w := driver.Write{Fence: granted[0].Fence, Number: 1, Nonce: 1}
	for i := range limits.WriteOps {
		w.Ops = append(w.Ops, driver.Op{Kind: driver.OpPut, Key: fmt.Sprint("k", i), Value: []byte("v"),
			IfVersion: driver.Absent})
	}
	sqlfault.Commit(t, s, w)
	w.Number, w.Ops = 2, append(w.Ops, driver.Op{Kind: driver.OpAppend})
	if _, err := s.Commit(t.Context(), []driver.Write{w}); !errors.Is(err, driver.ErrTooLarge) {
		t.Errorf("one operation more: %v, want ErrTooLarge", err)
	}
	large := openOn(t, c, Options{MaxTxnOps: 40})
	if n := large.Info().Limits.WriteOps; n != 37 {
		t.Errorf("configured: got %d, want 37", n)
	}

	small := servers.New(t, servers.Etcd, &servers.Options{NoSync: true, Config: []string{"max-txn-ops = 10"}})
	refusedOpen(t, config(t, small), &Options{Create: true}, "max-txn-ops", "16")

	// TestErrors covers a limit that is lowered: the server reports too many operations.
}

// TestMemberDown: opening does not need a member that is down, and does not wait for that member.
func TestMemberDown(t *testing.T) {
	t.Parallel()
	cluster := servers.NewCluster(t, servers.Etcd, 3, &servers.Options{NoSync: true})
	if err := cluster.Members()[0].Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := cluster.Members()[1].Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	// Without a majority, opening fails by the deadline.
	_ = refusedWithin(bounded(t, 5*time.Second), t, config(t, cluster.Members()...), &Options{Create: true})
	if err := cluster.Members()[1].Cont(); err != nil {
		t.Fatal(err)
	}
	ctx := bounded(t, ample.Time)
	for {
		b, err := Open(ctx, config(t, cluster.Members()...), "down", &Options{Create: true})
		if err == nil {
			if err := b.Close(); err != nil {
				t.Error(err)
			}
			return
		}
		if ctx.Err() != nil {
			t.Fatal(err)
		}
	}
}

// TestClientStaysOpen: a Backend does not close the caller's client.
func TestClientStaysOpen(t *testing.T) {
	t.Parallel()
	client := newClient(t, config(t, pool.Get(t, servers.Etcd, nil)))
	b, err := OpenClient(t.Context(), client, "mine", &Options{Create: true})
	if err != nil {
		t.Fatal(err)
	}
	sqlfault.Join(t, b, "n1")
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Get(t.Context(), "x"); err != nil {
		t.Error(err)
	}
	if _, err := OpenClient(t.Context(), clientv3.NewCtxClient(context.Background()), "mine",
		nil); !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("a client without a connection: %v, want ErrInvalid", err)
	}
}

// TestEndpointsAreFollowed: the client may learn of other members later.
func TestEndpointsAreFollowed(t *testing.T) {
	t.Parallel()
	server := pool.Get(t, servers.Etcd, nil)
	client := newClient(t, config(t, server))
	b, err := OpenClient(t.Context(), client, t.Name(), &Options{Create: true})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	client.SetEndpoints("127.0.0.1:1", "127.0.0.1:2")
	if page, err := b.ReadLog(bounded(t, ample.Time), "s", 0, 0); err == nil {
		t.Errorf("a read without a member is answered with %+v", page)
	}
	client.SetEndpoints(server.Addr())
	if _, err := b.ReadLog(bounded(t, ample.Time), "s", 0, 0); err != nil {
		t.Error(err)
	}
}

// TestGuard: an application's own transaction takes effect only under the current grant.
func TestGuard(t *testing.T) {
	t.Parallel()
	c := config(t, pool.Get(t, servers.Etcd, nil))
	client, b := newClient(t, c), openOn(t, c, Options{})
	former, successor := sqlfault.Join(t, b, "n1"), sqlfault.Join(t, b, "n2")
	granted, _ := sqlfault.Acquire(t, former, sqlfault.Claims(1))
	f := granted[0].Fence
	paid := func(f driver.Fence) bool {
		t.Helper()
		resp, err := client.Txn(t.Context()).If(b.Guard(f)...).Then(clientv3.OpPut("paid/"+t.Name(), "yes")).Commit()
		if err != nil {
			t.Fatal(err)
		}
		return resp.Succeeded
	}
	if !paid(f) {
		t.Error("refused under the current grant")
	}
	other, before, after := f, f, f
	other.Session, before.Session, after.Session = successor.ID(), "0", "zzz" // around the real session
	next := f
	next.Token++
	for _, wrong := range []driver.Fence{other, before, after, next, {},
		{Shard: f.Shard, Session: f.Session, Token: -1}, {Shard: "none", Session: f.Session, Token: f.Token}} {
		if paid(wrong) {
			t.Errorf("applied under %+v, which nobody was granted", wrong)
		}
	}
	moved, err := former.Transfer(t.Context(), []driver.Transfer{{Fence: f, To: successor.ID()}})
	if err != nil || moved[0].Err != nil {
		t.Fatal(moved, err)
	}
	if paid(f) || !paid(moved[0].Fence) {
		t.Error("after the hand-over the former fence holds, or the new one does not")
	}
	if err := successor.Release(t.Context(), []driver.Fence{moved[0].Fence}); err != nil {
		t.Fatal(err)
	}
	if paid(moved[0].Fence) {
		t.Error("applied under a released fence")
	}
}

// TestRaiseFloor: when the namespace is opened again, tokens continue above the operator's floor.
func TestRaiseFloor(t *testing.T) {
	t.Parallel()
	c := config(t, pool.Get(t, servers.Etcd, nil))
	b := openOn(t, c, Options{})
	const above = driver.Token(1) << 40
	if err := RaiseFloor(t.Context(), newClient(t, c), t.Name(), above, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Join(t.Context(), driver.Member{Session: "late", Node: "n1",
		TTL: 5 * time.Second}); !errors.Is(err, driver.ErrStoreChanged) {
		t.Errorf("a join through the Backend that was open before: %v, want ErrStoreChanged", err)
	}
	granted, _ := sqlfault.Acquire(t, sqlfault.Join(t, openOn(t, c, Options{}), "n1"), sqlfault.Claims(1))
	if token := granted[0].Fence.Token; token <= above {
		t.Errorf("got token %d, want more than %d", token, above)
	}
}

func TestSettings(t *testing.T) {
	t.Parallel()
	s := Settings{Endpoints: []string{"https://a:2379"}, Username: "u", Password: "wrong-secret"}
	if text := fmt.Sprintf("%v %+v %q", s, s, s.Password); strings.Contains(text, "wrong-secret") {
		t.Errorf("the password stands in %s", text)
	}
	if text, err := json.Marshal(s); err != nil || strings.Contains(string(text), "wrong-secret") {
		t.Errorf("the password stands in %s, %v", text, err)
	}
	if c, err := s.config(); err != nil || c.TLS == nil || c.Password != "wrong-secret" {
		t.Errorf("got TLS %v, %v", c.TLS, err)
	}
	for _, s := range []Settings{{Username: "u"}, {PasswordFile: "none"}, {CAFile: "none"}, {CertFile: "none"}} {
		if _, err := s.config(); !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("%+v: %v, want ErrInvalid", s, err)
		}
	}
}

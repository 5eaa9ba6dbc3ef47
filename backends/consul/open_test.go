package consul

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/tenure-go/tenure/conformance"
	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/proof/ample"
	"github.com/tenure-go/tenure/internal/proof/faultproxy"
	"github.com/tenure-go/tenure/internal/proof/outage"
	"github.com/tenure-go/tenure/internal/proof/servers"
	"github.com/tenure-go/tenure/internal/proof/sqlfault"
)

func TestOpenRefuses(t *testing.T) {
	t.Parallel()
	server := pool.Get(t, servers.Consul, nil)
	for _, c := range []struct {
		name      string
		config    Config
		namespace string
		options   Options
		is        error
		says      string
	}{
		{"no identity", Config{Address: server.Addr()}, fresh(), Options{}, driver.ErrStoreChanged, "Create"},
		{"namespace", Config{Address: server.Addr()}, "a b", Options{}, driver.ErrInvalid, "namespace"},
		{"operations", Config{Address: server.Addr()}, "app", Options{MaxTxnOps: 4}, driver.ErrInvalid, "32 to 128"},
		{"bytes", Config{Address: server.Addr()}, "app", Options{MaxTxnBytes: 4}, driver.ErrInvalid, "64 KiB"},
		{"plaintext", Config{Address: "consul.example:8500", Token: "planted-secret"}, "app", Options{}, driver.ErrInvalid, "https"},
		{"plaintext by scheme", Config{Address: "http://consul.example:8500", Token: "planted-secret"}, "app",
			Options{}, driver.ErrInvalid, "https"},
		{"user", Config{Address: "http://root:planted-secret@consul.example:8500"}, "app", Options{}, driver.ErrInvalid, "holds a user"},
		{"user without a scheme", Config{Address: "root:planted-secret@127.0.0.1:1"}, "app", Options{Insecure: true},
			driver.ErrInvalid, "holds a user"},
		{"user with a slash", Config{Address: "https://root:planted-secret/@127.0.0.1:1"}, "app", Options{},
			driver.ErrInvalid, "holds a user"},
		{"scheme", Config{Address: "ftp://consul.example", Token: "planted-secret"}, "app", Options{}, driver.ErrInvalid, "https"},
		{"CA", Config{Address: "https://127.0.0.1:1", CAFile: filepath.Join(t.TempDir(), "none"),
			Token: "planted-secret"}, "app", Options{}, driver.ErrInvalid, "no such file"},
		{"CA of no regular file", Config{Address: "https://127.0.0.1:1", CAFile: t.TempDir()}, "app", Options{}, driver.ErrInvalid, "regular file"},
		{"nobody there", Config{Address: "127.0.0.1:1", Token: "planted-secret"}, "app", Options{}, nil, "refused"},
		{"no token file", Config{Address: server.Addr(), TokenFile: filepath.Join(t.TempDir(), "none")}, "app",
			Options{}, nil, "no such file"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b, err := Open(t.Context(), c.config, c.namespace, &c.options)
			if err == nil {
				b.Close()
			}
			if err == nil || !strings.Contains(err.Error(), c.says) || c.is != nil && !errors.Is(err, c.is) {
				t.Errorf("got %v, want %v that says %q", err, c.is, c.says)
			}
			if text := fmt.Sprintf("%v %+v %#v", err, err, err); strings.Contains(text, "planted-secret") {
				t.Errorf("the error gives a token away: %s", text)
			}
		})
	}
}

func TestSettingsHideTheToken(t *testing.T) {
	t.Parallel()
	s := Settings{Config: Config{Token: "planted-secret"}}
	printed, err := json.Marshal(s)
	if text := fmt.Sprintf("%v %+v %#v %s %q %x", s, s, s, printed, s.Config.Token, s.Config.Token); err != nil ||
		strings.Contains(text, "planted") ||
		strings.Contains(text, hex.EncodeToString([]byte("planted-secret"))) {
		t.Errorf("the settings print as %s, %v", text, err)
	}
}

// guarded returns a server that requires tokens, and a client with all permissions.
func guarded(t *testing.T) (*servers.Server, *api.Client) {
	t.Helper()
	id := make([]byte, 16)
	rand.Read(id)
	root := fmt.Sprintf("%x-%x-%x-%x-%x", id[:4], id[4:6], id[6:8], id[8:10], id[10:])
	server := servers.New(t, servers.Consul, &servers.Options{Config: []string{
		`acl = { enabled = true, default_policy = "deny", tokens = { initial_management = "` + root + `" } }`,
	}})
	c, err := api.NewClient(&api.Config{Address: server.Addr(), Token: root})
	if err != nil {
		t.Fatal(err)
	}
	return server, c
}

// runTime makes a token that has the documentation's policy for a namespace.
func runTime(t *testing.T, admin *api.Client, namespace string) string {
	t.Helper()
	text, err := os.ReadFile("../../docs/backends/consul.md")
	if err != nil {
		t.Fatal(err)
	}
	block := regexp.MustCompile("(?s)<!-- recipe -->\n```hcl\n(.*?)```").FindSubmatch(text)
	if block == nil {
		t.Fatal("the documentation has no recipe")
	}
	policy, _, err := admin.ACL().PolicyCreate(&api.ACLPolicy{Name: "p" + rand.Text(),
		Rules: strings.ReplaceAll(string(block[1]), "orders/", namespace+"/")}, nil)
	if err != nil {
		t.Fatal(err)
	}
	token, _, err := admin.ACL().TokenCreate(&api.ACLToken{Policies: []*api.ACLLink{{ID: policy.ID}}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return token.SecretID
}

// TestRunTimePolicy runs the suite with the documentation's policy, and tries calls that the policy
// must not allow.
func TestRunTimePolicy(t *testing.T) {
	t.Parallel()
	server, admin := guarded(t)
	create := func(ctx context.Context, namespace string) error {
		b, err := OpenClient(ctx, admin, namespace, &Options{Create: true})
		if err != nil {
			return err
		}
		return b.Close()
	}
	h := conformance.Harness{Name: backendName, New: func(ct conformance.T) *conformance.Store {
		namespace := "suite/" + rand.Text()
		token := runTime(t, admin, namespace)
		return &conformance.Store{Deny: func(context.Context) (func(context.Context) error, error) {
			self, _, err := admin.ACL().TokenReadSelf(&api.QueryOptions{Token: token})
			if err != nil {
				return nil, err
			}
			policy, _, err := admin.ACL().PolicyRead(self.Policies[0].ID, nil)
			if err != nil {
				return nil, err
			}
			set := func(rules string) error {
				policy.Rules = rules
				_, _, err := admin.ACL().PolicyUpdate(policy, nil)
				return err
			}
			before := policy.Rules
			return func(context.Context) error { return set(before) }, set(strings.ReplaceAll(before, `"write"`, `"read"`))
		}, Open: func(ctx context.Context) (driver.Backend, error) {
			if err := create(ctx, namespace); err != nil {
				return nil, err
			}
			b, err := Open(ctx, Config{Address: server.Addr(), Token: driver.Secret(token)}, namespace, nil)
			if err != nil {
				return nil, err
			}
			return b, nil
		}}
	}}
	conformance.TestCases(t, h, "Acquire/Exclusive", "Acquire/PartialBatch", "Commit/AppliesWhenCurrent",
		"Commit/FencedAfterTakeover", "Membership/SupersedeEndsFormer", "Log/TailAllShards", "Views/FullThenDelta", "Errors/RightTakenAway")

	for _, namespace := range []string{"app", "app/eu"} {
		if err := create(t.Context(), namespace); err != nil {
			t.Fatal(err)
		}
	}
	token := runTime(t, admin, "app")
	c, err := api.NewClient(&api.Config{Address: server.Addr(), Token: token})
	if err != nil {
		t.Fatal(err)
	}
	put := func(key string) error {
		_, err := c.KV().Put(&api.KVPair{Key: key, Value: []byte("mine")}, nil)
		return err
	}
	remove := func(prefix string) error {
		_, err := c.KV().DeleteTree(prefix, nil)
		return err
	}
	_, identity := c.KV().Delete("app/!id", nil)
	_, _, below := c.KV().Get("app/eu/!id", nil)
	for what, err := range map[string]error{
		"delete the identity": identity, "write the identity": put("app/!id"), "delete the namespace": remove("app/"),
		"delete all that is Tenure's": remove("app/!"), "write elsewhere": put("other/x"), "write beside": put("app/x"),
		"write an identity further below": put("app/eu/!id"),
		"write a shard further below":     put("app/eu/!state/shard/s"),
		"delete further below":            remove("app/eu/"), "read further below": below,
	} {
		var status api.StatusError
		if !errors.As(err, &status) || status.Code != 403 {
			t.Errorf("%s: %v, want a refusal", what, err)
		}
	}
	// The documentation says that this is possible.
	b, err := Open(t.Context(), Config{Address: server.Addr(), Token: driver.Secret(token)}, "app", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	last, _ := acquire(t, sqlfault.Join(t, b, "n1"), sqlfault.Claims(1))
	if err := remove("app/!state/"); err != nil {
		t.Errorf("deleting all shards and members: %v", err)
	}
	// The answer to the first write shows that the store changed, although that write was applied
	// (E1).
	late := driver.Member{Session: "late", Node: "n2", TTL: time.Minute}
	if _, err := b.Join(t.Context(), late); !driver.Unknown(err) {
		t.Errorf("a process that saw the removed namespace joins: %v, want an unknown outcome", err)
	}
	if _, err := b.Join(t.Context(), late); !errors.Is(err, driver.ErrStoreChanged) {
		t.Errorf("a process that saw the removed namespace joins again: %v, want ErrStoreChanged", err)
	}
	later, err := Open(t.Context(), Config{Address: server.Addr(), Token: driver.Secret(token)}, "app", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer later.Close()
	if anew, _ := acquire(t, sqlfault.Join(t, later, "n3"), sqlfault.Claims(1)); anew[0].Token <= last[0].Token {
		t.Errorf("token %d after %d, when the record was removed", anew[0].Token, last[0].Token)
	}
}

// TestIdentityTampered: overwriting or removing the identity stops the members.
func TestIdentityTampered(t *testing.T) {
	t.Parallel()
	server := pool.Get(t, servers.Consul, nil)
	c, err := api.NewClient(&api.Config{Address: server.Addr()})
	if err != nil {
		t.Fatal(err)
	}
	put := func(value string) func(string) error {
		return func(namespace string) error {
			_, err := c.KV().Put(&api.KVPair{Key: namespace + "/!id", Value: []byte(value)}, nil)
			return err
		}
	}
	outage.Identity(t, func(t *testing.T, namespace string) driver.Backend {
		b, err := Open(t.Context(), Config{Address: server.Addr()}, namespace, &Options{Create: true})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { b.Close() })
		return b
	}, map[string]func(string) error{
		"garbage": put("garbage"),
		"another": put(`{"v":1,"id":"ANOTHER","base":0}`),
		"removed": func(namespace string) error {
			_, err := c.KV().Delete(namespace+"/!id", nil)
			return err
		},
	})
}

// TestTokenRevoked: after a member's token has lost a permission, the member's writes are certainly
// not applied, and the error does not claim that the session was lost.
func TestTokenRevoked(t *testing.T) {
	t.Parallel()
	server, admin := guarded(t)
	if b, err := OpenClient(t.Context(), admin, "app", &Options{Create: true}); err != nil {
		t.Fatal(err)
	} else if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	token := runTime(t, admin, "app")
	file := filepath.Join(t.TempDir(), "token")
	write := func(token string) {
		if err := os.WriteFile(file, []byte(token+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(token)
	settings := Settings{Config: Config{Address: server.Addr(), TokenFile: file}, Namespace: "app"}
	b, err := Opener().Open(t.Context(), func(to any) error { *to.(*Settings) = settings; return nil })
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	s := sqlfault.Join(t, b, "n1")
	acquire(t, s, sqlfault.Claims(1))
	write("11111111-2222-3333-4444-555555555555")
	err = s.Beat(t.Context())
	if !errors.Is(err, driver.ErrRetry) || errors.Is(err, driver.ErrSessionLost) {
		t.Errorf("a heartbeat with a revoked token: %v, want ErrRetry", err)
	}
	if text := fmt.Sprintf("%+v", err); strings.Contains(text, token) || strings.Contains(text, "11111111-2222") {
		t.Errorf("the error gives a token away: %s", text)
	}
	write(token)
	if err := s.Beat(t.Context()); err != nil {
		t.Errorf("with the token again: %v", err)
	}
}

func TestTLS(t *testing.T) {
	t.Parallel()
	server := servers.New(t, servers.Consul, &servers.Options{TLS: servers.TLSMutual})
	cert, key := server.ClientFiles()
	good := Config{Address: server.Addr(), TLS: true, CAFile: server.CAFile(), CertFile: cert, KeyFile: key}
	b, err := Open(t.Context(), good, "app", &Options{Create: true})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	acquire(t, sqlfault.Join(t, b, "n1"), sqlfault.Claims(1))
	other := servers.New(t, servers.Consul, &servers.Options{TLS: servers.TLSServer})
	for name, change := range map[string]func(*Config){
		"plaintext":      func(c *Config) { c.TLS = false },
		"another CA":     func(c *Config) { c.CAFile = other.CAFile() },
		"wrong name":     func(c *Config) { c.ServerName = "other.example" },
		"no certificate": func(c *Config) { c.CertFile, c.KeyFile = "", "" },
	} {
		c := good
		change(&c)
		if b, err := Open(t.Context(), c, "app", nil); err == nil {
			b.Close()
			t.Errorf("%s is accepted", name)
		}
	}
}

// TestAddress: an address without a scheme leaves the environment's TLS on. The test is not
// parallel, because it sets the environment.
func TestAddress(t *testing.T) {
	const on = "true"
	for _, c := range []struct {
		address, ssl string
		tls          bool
		want         string // scheme, address, path; empty for a refusal
	}{
		{"127.0.0.1:8500", "", false, "http 127.0.0.1:8500"},
		{"127.0.0.1:8500", on, false, "https 127.0.0.1:8500"},
		{"consul.example:8501", on, false, "https consul.example:8501"},
		{"consul.example:8501", "", true, "https consul.example:8501"},
		{"consul.example:8500", "", false, ""},
		{"http://127.0.0.1:8500", on, false, "http 127.0.0.1:8500"},
		{"http://consul.example:8500", on, false, ""},
		{"https://consul.example", "", false, "https consul.example"},
		{"https://consul.example:8501/", "", false, "https consul.example:8501"},
		{"https://consul.example/a/consul/", "", false, "https consul.example/a/consul"},
		{"127.0.0.1:8500/consul", "", false, "http 127.0.0.1:8500/consul"},
		{"unix:///run/consul.sock", "", false, "http unix:///run/consul.sock"},
	} {
		t.Setenv(api.HTTPSSLEnvName, c.ssl)
		got := ""
		cfg, err := (&Config{Address: c.address, TLS: c.tls}).client(false)
		if err == nil {
			got = cfg.Scheme + " " + cfg.Address + cfg.PathPrefix
		} else if !errors.Is(err, driver.ErrInvalid) {
			t.Error(err)
		}
		if got != c.want {
			t.Errorf("%s with %s=%s and TLS %v: %q, %v, want %q", c.address, api.HTTPSSLEnvName, c.ssl, c.tls, got, err,
				c.want)
		}
	}
	t.Setenv(api.HTTPSSLEnvName, on)
	t.Setenv(api.HTTPAddrEnvName, "consul.example/consul")
	if cfg, err := (&Config{}).client(false); err != nil || cfg.Scheme != "https" || cfg.Address != "consul.example" ||
		cfg.PathPrefix != "/consul" {
		t.Errorf("from the environment: %+v, %v", cfg, err)
	}
}

func TestAddresses(t *testing.T) {
	t.Parallel()
	good := pool.Get(t, servers.Consul, nil).Addr()
	for _, c := range []Config{
		{Address: good, Addresses: []string{good}}, {Addresses: []string{good, ""}}, {Addresses: []string{good, "consul.example:8500"}},
	} {
		if _, err := Open(t.Context(), c, fresh(), &Options{Create: true}); !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("%+v: %v, want ErrInvalid", c, err)
		}
	}
	// An address that refuses connections, or accepts them and never answers, does not matter.
	silent, err := faultproxy.New(good, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	if err := silent.Set(faultproxy.Faults{Mute: true}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), ample.Time)
	defer cancel()
	b, err := Open(ctx, Config{Addresses: []string{"127.0.0.1:1", silent.Addr(), good}}, fresh(),
		&Options{Create: true})
	if err != nil {
		t.Fatal(err)
	}
	acquire(t, sqlfault.Join(t, b, "n1"), sqlfault.Claims(1))
	if err := b.Close(); err != nil {
		t.Error(err)
	}
}

// TestPathPrefix reaches Consul through a proxy that serves Consul below a path.
func TestPathPrefix(t *testing.T) {
	t.Parallel()
	to := &url.URL{Scheme: "http", Host: pool.Get(t, servers.Consul, nil).Addr()}
	proxy := httptest.NewServer(http.StripPrefix("/a/consul", httputil.NewSingleHostReverseProxy(to)))
	defer proxy.Close()
	for _, address := range []string{proxy.URL + "/a/consul/", strings.TrimPrefix(proxy.URL, "http://") + "/a/consul"} {
		b, err := Open(t.Context(), Config{Address: address}, fresh(), &Options{Create: true})
		if err != nil {
			t.Errorf("%s: %v", address, err)
			continue
		}
		acquire(t, sqlfault.Join(t, b, "n1"), sqlfault.Claims(1))
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestGuardOps: a caller's own transaction takes effect only under the lease.
func TestGuardOps(t *testing.T) {
	t.Parallel()
	server := pool.Get(t, servers.Consul, nil)
	b := openOn(t, server, fresh(), new(traffic))
	former, successor := sqlfault.Join(t, b, "n1"), sqlfault.Join(t, b, "n2")
	fences, next := acquire(t, former, sqlfault.Claims(1))
	guard, err := b.GuardOps(t.Context(), fences[0])
	if err != nil {
		t.Fatal(err)
	}
	c, err := client(server)
	if err != nil {
		t.Fatal(err)
	}
	key := "mine/" + rand.Text()
	put := &api.TxnOp{KV: &api.KVTxnOp{Verb: api.KVSet, Key: key, Value: []byte("v")}}
	if ok, res, _, err := c.Txn().Txn(append(guard, put), nil); err != nil || !ok {
		t.Fatalf("under the lease: %v, %+v, %v", ok, res, err)
	}
	next[0].Preempt = true
	acquire(t, successor, next)
	ok, res, _, err := c.Txn().Txn(append(guard, put), nil)
	if err != nil || ok || len(res.Errors) != 1 || res.Errors[0].OpIndex != len(guard)-1 {
		t.Errorf("after a takeover: %v, %+v, %v; want the guard's last operation refused", ok, res, err)
	}
	var fenced *driver.FencedError
	if _, err := openOn(t, server, b.Info().Namespace, new(traffic)).GuardOps(t.Context(), fences[0]); !errors.As(err,
		&fenced) {
		t.Errorf("the guard of a dead fence: %v, want FencedError", err)
	}
}

// TestRaiseFloor: later tokens are above the floor, and open backends must be opened again.
func TestRaiseFloor(t *testing.T) {
	t.Parallel()
	server, ns := pool.Get(t, servers.Consul, nil), fresh()
	before := openOn(t, server, ns, new(traffic))
	s := sqlfault.Join(t, before, "n1")
	c, err := client(server)
	if err != nil {
		t.Fatal(err)
	}
	const floor = 1 << 40
	if err := RaiseFloor(t.Context(), c, ns, floor, nil); err != nil {
		t.Fatal(err)
	}
	if err := s.Beat(t.Context()); !errors.Is(err, driver.ErrStoreChanged) {
		t.Errorf("a heartbeat of before: %v, want ErrStoreChanged", err)
	}
	fences, _ := acquire(t, sqlfault.Join(t, openOn(t, server, ns, new(traffic)), "n2"), sqlfault.Claims(1))
	if fences[0].Token <= floor {
		t.Errorf("token %d, want one above %d", fences[0].Token, floor)
	}
}

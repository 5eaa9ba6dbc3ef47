package zookeeper

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/proof/ample"
	"github.com/tenure-go/tenure/internal/proof/servers"
	"github.com/tenure-go/tenure/internal/proof/sqlfault"
)

func TestOpenRefuses(t *testing.T) {
	t.Parallel()
	server := pool.Get(t, servers.ZooKeeper, nil)
	here := []string{server.Addr()}
	for _, c := range []struct {
		name, namespace string
		servers         []string
		options         Options
		is              error
		says            string
	}{
		{"no identity", "missing", here, Options{}, driver.ErrStoreChanged, "Create"},
		{"namespace", "a b", here, Options{}, driver.ErrInvalid, "namespace"},
		{"no servers", "app", nil, Options{}, driver.ErrInvalid, "host:port"},
		{"a root in the server", "app", []string{server.Addr() + "/root"}, Options{}, driver.ErrInvalid, "Options.Root"},
		{"a list in one server", "app", []string{"a:1,b:1"}, Options{}, driver.ErrInvalid, "host:port"},
		{"root", "app", here, Options{Root: "tenure/"}, driver.ErrInvalid, "root"},
		{"user without password", "app", here, Options{User: "me"}, driver.ErrInvalid, "password"},
		{"colon", "app", here, Options{User: "me", Password: "planted:secret"}, driver.ErrInvalid, "colon"},
		{"administrator", "app", here, Options{Admins: []string{"admin"}}, driver.ErrInvalid, "scheme:id"},
		{"plaintext", "app", []string{"zk.example:2181"}, Options{User: "me", Password: "planted-secret"}, driver.ErrInvalid, "TLS"},
		{"plaintext without a user", "app", []string{server.Addr(), "zk.example:2181"}, Options{}, driver.ErrInvalid, "TLS"},
		{"unchecked certificate", "app", []string{"zk.example:2181"},
			Options{TLS: &tls.Config{InsecureSkipVerify: true}}, driver.ErrInvalid, "certificate"},
		{"unchecked with a password", "app", []string{"192.0.2.1"},
			Options{User: "me", Password: "planted-secret", TLS: &tls.Config{InsecureSkipVerify: true}},
			driver.ErrInvalid, "certificate"},
		{"nobody there", "app", []string{"127.0.0.1:1"}, Options{Create: true, User: "me", Password: "planted-secret"},
			driver.ErrRetry, "no server"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			_, err := Open(bounded(t, 10*time.Second), c.servers, c.namespace, &c.options)
			if !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %v, want %v that says %q", err, c.is, c.says)
			}
			if text := fmt.Sprintf("%v %+v %#v", err, err, err); strings.Contains(text, "planted") {
				t.Errorf("the error gives a password away: %s", text)
			}
		})
	}
}

// TestInsecure: Options.Insecure allows connections that TestOpenRefuses refuses. Connections to
// this machine are also allowed.
func TestInsecure(t *testing.T) {
	t.Parallel()
	unchecked := &tls.Config{InsecureSkipVerify: true}
	checked := &tls.Config{InsecureSkipVerify: true, VerifyConnection: func(tls.ConnectionState) error { return nil }}
	for _, c := range []struct {
		server  string
		options Options
		allowed bool
	}{
		{"zk.example", Options{}, false},
		{"zk.example", Options{TLS: unchecked}, false},
		{"zk.example", Options{Insecure: true}, true},
		{"zk.example", Options{TLS: unchecked, Insecure: true}, true},
		{"zk.example", Options{TLS: &tls.Config{}}, true},
		{"zk.example", Options{TLS: checked}, true},
		{"127.0.0.1:2181", Options{}, true},
		{"[::1]:2181", Options{TLS: unchecked}, true},
		{"localhost", Options{User: "me", Password: "planted"}, true},
	} {
		if _, err := c.options.checkServers([]string{c.server}); (err == nil) != c.allowed {
			t.Errorf("%s with %+v: %v", c.server, c.options, err)
		}
	}
}

func TestSecret(t *testing.T) {
	t.Parallel()
	s := Settings{Options: Options{Password: "planted"}}
	text, err := json.Marshal(s)
	if all := fmt.Sprintf("%v %+v %#v %s %s", s, s, s, s.Password, text); err != nil ||
		strings.Contains(all, "planted") {
		t.Errorf("the password shows: %s, %v", all, err)
	}
}

func TestTLS(t *testing.T) {
	t.Parallel()
	server := servers.New(t, servers.ZooKeeper, &servers.Options{TLS: servers.TLSMutual})
	cert, key := server.ClientFiles()
	user := server.User()
	settings := map[string]any{
		"servers": []string{server.Addr()}, "namespace": "app", "create": true, "user": user.User(),
		"password": user.Password(),
		"ca_file":  server.CAFile(), "cert_file": cert, "key_file": key,
	}
	decode := func(into any) error {
		text, err := json.Marshal(settings)
		if err != nil {
			return err
		}
		d := json.NewDecoder(bytes.NewReader(text))
		d.DisallowUnknownFields()
		return d.Decode(into)
	}
	b, err := Opener().Open(bounded(t, ample.Time), decode)
	if err != nil {
		t.Fatal(err)
	}
	sqlfault.Join(t, b, "n1")
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	for name, cfg := range map[string]*tls.Config{"none": nil, "another CA": {MinVersion: tls.VersionTLS12}} {
		if _, err := Open(bounded(t, 10*time.Second), []string{server.Addr()}, "app",
			&Options{TLS: cfg}); !errors.Is(err, driver.ErrRetry) {
			t.Errorf("with TLS %s: %v", name, err)
		}
	}
}

// TestRights: if there is an administrator, the run-time user cannot remove the record of a shard,
// a head or the identity. It also cannot change the identity, or give itself such permissions. No
// other user can read anything.
func TestRights(t *testing.T) {
	t.Parallel()
	server := pool.Get(t, servers.ZooKeeper, nil)
	user := server.User()
	other := "digest:" + zk.DigestACL(0, "boss", "boss-password")[0].ID
	const root = "/rights" // its own: the maker of a root decides on its users
	b := openOn(t, Options{Root: root, User: user.User(), Password: driver.Secret(user.Password()), Admins: []string{other}},
		server)
	s := sqlfault.Join(t, b, "n1")
	granted, _ := sqlfault.Acquire(t, s, sqlfault.Claims(1))
	if err := commit(t.Context(), s, granted[0].Fence, 1, "a"); err != nil {
		t.Fatal(err)
	}
	base := root + "/" + t.Name()
	as := func(user, password string) *zk.Conn {
		conn, _, err := zk.Connect([]string{server.Addr()}, 10*time.Second, zk.WithLogger(silent{}))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(conn.Close)
		if err := conn.AddAuth("digest", []byte(user+":"+password)); err != nil {
			t.Fatal(err)
		}
		return conn
	}
	own, stranger := as(user.User(), user.Password()), as("stranger", "x")
	shard := "/" + string(granted[0].Fence.Shard)
	for _, node := range []string{base + "/!state/shard" + shard, base + "/!head" + shard, base + "/!id",
		base + "/!log" + shard} {
		if err := own.Delete(node, -1); !errors.Is(err, zk.ErrNoAuth) && !errors.Is(err, zk.ErrNotEmpty) {
			t.Errorf("removing %s: %v", node, err)
		}
		if _, err := own.SetACL(node, zk.WorldACL(zk.PermAll), -1); !errors.Is(err, zk.ErrNoAuth) {
			t.Errorf("changing the right to remove %s: %v", node, err)
		}
		if _, _, err := stranger.Get(node); !errors.Is(err, zk.ErrNoAuth) {
			t.Errorf("a stranger reads %s: %v", node, err)
		}
	}
	if _, err := own.Set(base+"/!id", []byte("mine"), -1); !errors.Is(err, zk.ErrNoAuth) {
		t.Errorf("writing the identity: %v", err)
	}
	if _, err := own.Multi(&zk.DeleteRequest{Path: base + "/!id", Version: -1},
		&zk.CreateRequest{Path: base + "/!id", Data: []byte("mine"),
			Acl: zk.WorldACL(zk.PermAll)}); !errors.Is(err, zk.ErrNoAuth) {
		t.Errorf("making the identity again: %v", err)
	}
	// The documentation says that this is possible.
	for _, node := range []string{base + "/!state/shard" + shard, base + "/!head" + shard, base + "/!state/member/" +
		string(s.ID())} {
		value, stat, err := own.Get(node)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := own.Set(node, value, stat.Version); err != nil {
			t.Errorf("writing %s: %v", node, err)
		}
	}
	servers := addrs([]*servers.Server{server})
	if err := RaiseFloor(t.Context(), servers, t.Name(), 1<<50,
		&Options{Root: root, User: user.User(), Password: driver.Secret(user.Password())}); err == nil {
		t.Error("the run-time user raises the floor")
	}
	if err := RaiseFloor(t.Context(), servers, t.Name(), 1<<50,
		&Options{Root: root, User: "boss", Password: "boss-password", Admins: []string{other}}); err != nil {
		t.Errorf("an administrator raises the floor: %v", err)
	}
	again, err := Open(t.Context(), servers, t.Name(),
		&Options{Root: root, User: user.User(), Password: driver.Secret(user.Password()), Admins: []string{other}})
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if res, _ := sqlfault.Acquire(t, sqlfault.Join(t, again, "n2"), []driver.Claim{{Shard: "another"}}); res[0].Fence.Token <= 1<<50 {
		t.Errorf("token %d after the floor was raised to %d", res[0].Fence.Token, int64(1)<<50)
	}
	if _, err := Open(t.Context(), servers, t.Name(), &Options{Root: root}); err == nil ||
		!strings.Contains(err.Error(), zk.ErrNoAuth.Error()) {
		t.Errorf("a stranger opens it: %v", err)
	}
	if _, err := Open(t.Context(), servers, t.Name()+"2", &Options{Root: root, Create: true}); err == nil ||
		!strings.Contains(err.Error(), "Options.Root") {
		t.Errorf("a stranger makes another beside it: %v", err)
	}
}

func TestGuardOps(t *testing.T) {
	t.Parallel()
	server := pool.Get(t, servers.ZooKeeper, nil)
	b := openOn(t, Options{}, server)
	former := sqlfault.Join(t, b, "n1")
	granted, next := sqlfault.Acquire(t, former, sqlfault.Claims(1))
	app := client(t, server)
	own := "/" + t.Name()
	if _, err := app.Create(own, nil, 0, zk.WorldACL(zk.PermAll)); err != nil {
		t.Fatal(err)
	}
	guard, err := b.GuardOps(t.Context(), granted[0].Fence)
	if err != nil {
		t.Fatal(err)
	}
	pay := func(guard []any) error {
		_, err := app.Multi(append(guard, &zk.SetDataRequest{Path: own, Data: []byte("paid"), Version: -1})...)
		return err
	}
	if err := pay(guard); err != nil {
		t.Error("under the current fence:", err)
	}
	successor := sqlfault.Join(t, b, "n2")
	if err := former.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	taken, _ := sqlfault.Acquire(t, successor, next)
	if err := pay(guard); !errors.Is(err, zk.ErrBadVersion) {
		t.Error("under a former fence:", err)
	}
	if _, err := b.GuardOps(t.Context(), granted[0].Fence); !errors.Is(err, driver.ErrFenced) {
		t.Error("a guard for a former fence:", err)
	}
	// This uses a backend that does not know the lease yet.
	if guard, err = openOn(t, Options{}, server).GuardOps(t.Context(), taken[0].Fence); err != nil {
		t.Fatal(err)
	}
	if err := pay(guard); err != nil {
		t.Error("under the successor's fence:", err)
	}
	if err := RaiseFloor(t.Context(), []string{server.Addr()}, t.Name(), taken[0].Fence.Token+1000, nil); err != nil {
		t.Fatal(err)
	}
	if err := pay(guard); !errors.Is(err, zk.ErrBadVersion) {
		t.Error("after the floor was raised:", err)
	}
	if err := successor.Beat(t.Context()); !errors.Is(err, driver.ErrStoreChanged) {
		t.Error("a heartbeat after the floor was raised:", err)
	}
	b = openOn(t, Options{}, server)
	s := sqlfault.Join(t, b, "n3")
	res, err := s.Acquire(t.Context(), []driver.Claim{{Shard: "another"}})
	if err != nil || res[0].Fence.Token <= taken[0].Fence.Token+1000 {
		t.Error(res, err)
	}
}

// TestNames maps keys to nodes and back, and refuses other texts.
func TestNames(t *testing.T) {
	t.Parallel()
	p := paths{"/tenure"}
	for key, want := range map[string]string{
		"a/b/!id":                "/tenure/a/b/!id",
		"a/!state/shard/eu.1":    "/tenure/a/!state/shard/eu.1",
		"a/!item/eu/config/db":   "/tenure/a/!item/eu/config:db",
		"a/!log/eu/000000000001": "/tenure/a/!log/eu/000000000001",
		"a/!probe/X/guarded":     "/tenure/a/!probe/X:guarded",
	} {
		dir, node, err := p.node(key)
		if err != nil || node != want || !strings.HasPrefix(node, dir+"/") {
			t.Errorf("%s: %s in %s, %v", key, node, dir, err)
		}
	}
	for _, key := range []string{"", "a", "!id", "a/!state", "a/!state/shard", "a/!item/eu/", "a/!beat/..",
		"a/!beat/x:y", "a/!beat/\x00", "a/!beat/é", "a//!id"} {
		if _, node, err := p.node(key); !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("%q is %s, %v", key, node, err)
		}
	}
	s, err := p.scope("a/!item/eu/config/")
	if err != nil || s.nested || s.dir != "/tenure/a/!item/eu" {
		t.Fatal(s, err)
	}
	if keys := s.keys([]string{"config:db", "config2", "config:db:x"}); fmt.Sprint(keys) != "[a/!item/eu/config/db "+
		"a/!item/eu/config/db/x]" {
		t.Error(keys)
	}
	if s, err := p.scope("a/!state/"); err != nil || !s.nested || s.below("shard").dir != "/tenure/a/!state/shard" {
		t.Error(s, err)
	}
}

// TestFrames cuts a stream of packets at every place.
func TestFrames(t *testing.T) {
	t.Parallel()
	stream := append([]byte{0, 0, 0, 20}, make([]byte, 20)...) // a connect response
	packet := func(xid int32, zxid int64, size int) {
		p := make([]byte, 4+16+size)
		p[3] = byte(16 + size)
		for i := range 4 {
			p[4+i] = byte(xid >> (24 - 8*i))
		}
		for i := range 8 {
			p[8+i] = byte(zxid >> (56 - 8*i))
		}
		stream = append(stream, p...)
	}
	packet(1, 7, 0)
	packet(-1, 99, 30)
	packet(-2, 98, 0)
	packet(2, 9, 100)
	for at := range stream {
		conn := newObservedConn(nil, nil)
		conn.feed(stream[:at])
		conn.feed(stream[at:])
		if got := conn.zxid.Load(); got != 9 {
			t.Fatalf("cut at %d: zxid %d, want 9", at, got)
		}
	}
}

func TestCloseEndsEverything(t *testing.T) {
	t.Parallel()
	server := pool.Get(t, servers.ZooKeeper, nil)
	b, err := Open(t.Context(), []string{server.Addr()}, t.Name(), &Options{Create: true})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	view, err := b.Observe(ctx, driver.ObserveQuery{})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		_, err := b.Observe(ctx, driver.ObserveQuery{Since: view.Cursor})
		done <- err
	}()
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	if err := <-done; !errors.Is(err, driver.ErrClosed) {
		t.Errorf("a blocked call ends with %v", err)
	}
}

// TestTooFewConnections: if the server ends connections, the error names the limit that may be the
// reason. If the server ends a connection while it is being made, the kernel reports a connect
// error.
func TestTooFewConnections(t *testing.T) {
	t.Parallel()
	for _, errno := range []syscall.Errno{syscall.EPIPE, syscall.ECONNRESET} {
		o := &Options{dial: func(context.Context, string) (net.Conn, error) {
			return nil, &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", errno)}
		}}
		if _, err := o.link()(t.Context(), "a:1"); err == nil || !strings.Contains(err.Error(), "maxClientCnxns") {
			t.Error(err)
		}
	}
	server := servers.New(t, servers.ZooKeeper, &servers.Options{NoSync: true, Config: []string{"maxClientCnxns = 1"}})
	b, err := Open(bounded(t, 10*time.Second), []string{server.Addr()}, "app", &Options{Create: true})
	if err == nil {
		b.Close()
	}
	if err == nil || !strings.Contains(err.Error(), "maxClientCnxns") {
		t.Error(err)
	}
}

package quorum

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/tenure-go/tenure/backends/etcd"
	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/internal/proof/ample"
	"github.com/tenure-go/tenure/internal/proof/sqlfault"
)

// alone returns the configuration of a cluster of one member.
func alone(t *testing.T) Config {
	c := newCluster(t)
	s := c.setting("a").Config
	s.Members, s.Create, s.Logger = s.Members[:1], true, slog.New(slog.DiscardHandler)
	return s
}

func bounded(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), ample.Time)
	t.Cleanup(cancel)
	return ctx
}

func started(t *testing.T, c Config) *Member {
	t.Helper()
	m, err := Start(bounded(t), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	return m
}

// refused reports an error unless the call returned ErrInvalid and a text with all words.
func refused(t *testing.T, m *Member, err error, words ...string) {
	t.Helper()
	if err == nil {
		t.Errorf("no error, want one with %q", words)
		_ = m.Close()
		return
	}
	if !errors.Is(err, core.ErrInvalid) {
		t.Errorf("%v does not match ErrInvalid", err)
	}
	if strings.Count(err.Error(), "tenure: ") != 1 {
		t.Errorf("%q has not exactly one prefix", err)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%q does not contain %q", err, w)
		}
	}
}

// TestInvalid: an invalid configuration is refused before anything is written.
func TestInvalid(t *testing.T) {
	t.Parallel()
	good := Config{Cluster: "c", Name: "a", Dir: filepath.Join(t.TempDir(), "data"), Create: true,
		Members: []Address{{"a", "127.0.0.1:1", "127.0.0.1:2"}, {"b", "localhost:3", "[::1]:4"}}}
	if _, self, err := good.checked(t.Context()); err != nil || self.Name != "a" {
		t.Fatal(self, err)
	}
	for name, c := range map[string]struct {
		change func(c *Config)
		words  string
	}{
		"no cluster":      {func(c *Config) { c.Cluster = "" }, "Cluster"},
		"long cluster":    {func(c *Config) { c.Cluster = strings.Repeat("x", 65) }, "1 to 64"},
		"name with comma": {func(c *Config) { c.Members[1].Name = "b,c" }, "use a name"},
		"no folder":       {func(c *Config) { c.Dir = "" }, "set Dir"},
		"small quota":     {func(c *Config) { c.Quota = 1 }, "64 MiB"},
		"large quota":     {func(c *Config) { c.Quota = 9 << 30 }, "8 GiB"},
		"short retention": {func(c *Config) { c.Retention = time.Second }, "1m0s"},
		"no members":      {func(c *Config) { c.Members = nil }, "name 1 to 7"},
		"many members":    {func(c *Config) { c.Members = make([]Address, 8) }, "name 1 to 7"},
		"not a member":    {func(c *Config) { c.Name = "z" }, "not in Members"},
		"same name":       {func(c *Config) { c.Members[1].Name = "a" }, "occurs twice"},
		"same address":    {func(c *Config) { c.Members[1].Client = "127.0.0.1:1" }, "occurs twice"},
		"no port":         {func(c *Config) { c.Members[0].Peer = "127.0.0.1" }, "host:port"},
		"port 0":          {func(c *Config) { c.Members[0].Peer = "127.0.0.1:0" }, "host:port"},
		"a URL":           {func(c *Config) { c.Members[0].Peer = "http://a:1" }, "host:port"},
		"bad host":        {func(c *Config) { c.Members[0].Peer = "a,b:1" }, "host:port"},
		"unspecified":     {func(c *Config) { c.Members[0].Peer = "0.0.0.0:1" }, "others connect"},
		"exposed":         {func(c *Config) { c.Members[1].Client = "db:4" }, "db:4 is not a loopback address"},
		"no CA":           {func(c *Config) { c.ClientTLS.CertFile = "x" }, "ClientTLS: CAFile"},
	} {
		t.Run(name, func(t *testing.T) {
			bad := good
			bad.Members = append([]Address(nil), good.Members...)
			c.change(&bad)
			m, err := Start(bounded(t), bad)
			refused(t, m, err, c.words)
			m, err = Replace(bounded(t), bad)
			refused(t, m, err, c.words)
		})
	}
	if _, err := os.Stat(good.Dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the data folder was created: %v", err)
	}
}

// TestFolder: Start refuses data of another cluster or member, and changes nothing in the folder.
func TestFolder(t *testing.T) {
	t.Parallel()
	c := alone(t)
	c.Cluster = "orders"
	m := started(t, c)
	again, err := Start(bounded(t), c)
	refused(t, again, err, "another member uses", c.Dir)
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	foreign := c
	foreign.Cluster = "billing"
	again, err = Start(bounded(t), foreign)
	refused(t, again, err, `"orders"`, `"billing"`, "set another Dir")
	again, err = Replace(bounded(t), foreign)
	refused(t, again, err, `"orders"`, `"billing"`)

	other := c
	other.Name, other.Members = "z", []Address{{"z", c.Members[0].Peer, c.Members[0].Client}}
	again, err = Start(bounded(t), other)
	refused(t, again, err, `"a"`, `"z"`)

	moved := c
	moved.Members = []Address{{"a", "127.0.0.1:1", c.Members[0].Client}}
	again, err = Start(bounded(t), moved)
	refused(t, again, err, c.Members[0].Peer, "127.0.0.1:1", "Replace")

	full := c
	full.Dir = t.TempDir()
	if err := os.WriteFile(filepath.Join(full.Dir, "notes.txt"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	again, err = Start(bounded(t), full)
	refused(t, again, err, "notes.txt", "empty folder")
	if files, err := os.ReadDir(full.Dir); err != nil || len(files) != 1 {
		t.Errorf("%d files in the refused folder, %v; want 1", len(files), err)
	}

	damaged := c
	damaged.Dir = t.TempDir()
	for _, text := range []string{"", "{", `{"cluster": 1}`, strings.Repeat(" ", 1<<20) + `{"cluster": "orders"}`} {
		if err := os.WriteFile(filepath.Join(damaged.Dir, identityFile), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		m, err := Start(bounded(t), damaged)
		if m != nil || err == nil || !strings.Contains(err.Error(), identityFile) || !strings.Contains(err.Error(), "Replace") {
			t.Errorf("with an identity of %d bytes: %v, %v", len(text), m, err)
		}
	}

	c.Create = false
	started(t, c) // the data is unharmed
	c.Dir = t.TempDir()
	again, err = Start(bounded(t), c)
	refused(t, again, err, "is empty", "set Create", "Replace")
}

// TestNoMajority: Start ends with its context, and leaves the folder and the ports free.
func TestNoMajority(t *testing.T) {
	t.Parallel()
	c := newCluster(t).setting("a").Config
	c.Create, c.Logger = true, slog.New(slog.DiscardHandler)
	for range 2 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		m, err := Start(ctx, c)
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "start the others") {
			t.Errorf("one of three members: %v, %v", m, err)
		}
	}
}

// TestGoroutines: Close joins every goroutine of etcd and of this package.
func TestGoroutines(t *testing.T) { // alone, so that no other test has goroutines of etcd
	c := alone(t)
	m := started(t, c)
	b := open(t, m)
	if err := errors.Join(b.Close(), m.Close(), m.Close()); err != nil {
		t.Fatal(err)
	}
	if m.Err() != nil {
		t.Errorf("a member that was closed has the error %v", m.Err())
	}
	var stacks string
	buf := make([]byte, 1<<20)
	if !ample.Soon(t.Context(), func() bool {
		stacks = string(buf[:runtime.Stack(buf, true)])
		for _, s := range strings.Split(stacks, "\n\n")[1:] {
			if strings.Contains(s, "testing.tRunner") {
				continue
			}
			if strings.Contains(s, "go.etcd.io/") || strings.Contains(s, "tenure/quorum.") {
				return false
			}
		}
		return true
	}) {
		t.Errorf("goroutines remain after Close:\n%s", stacks)
	}
}

func open(t *testing.T, m *Member) *Backend {
	t.Helper()
	return sqlfault.Open(t, func(ctx context.Context) (*Backend, error) {
		return m.Open(ctx, namespace, &etcd.Options{Create: true})
	})
}

// TestTLS: members with certificates serve clients with certificates only.
func TestTLS(t *testing.T) {
	t.Parallel()
	c := alone(t)
	host, _, _ := hostOf(c.Members[0].Peer)
	c.PeerTLS = certificate(t, host)
	c.ClientTLS = certificate(t, host)
	b := open(t, started(t, c))
	s := sqlfault.Join(t, b, "n1")
	granted, _ := sqlfault.Acquire(t, s, sqlfault.Claims(1))
	sqlfault.Commit(t, s, sqlfault.AppendOf(granted[0].Fence, 1, []byte("x")))

	stranger := c
	stranger.ClientTLS = certificate(t, host)
	stranger.Name = "other"
	client, err := stranger.connect(c.endpoints()...)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if _, err := client.Get(ctx, "x"); err == nil {
		t.Error("a client with a certificate of another authority was served")
	}

	dialing := c
	dialing.Name, dialing.Dir, dialing.ClientTLS = "", "", c.ClientTLS
	if b, err := Dial(bounded(t), dialing, namespace, nil); err != nil {
		t.Error(err)
	} else if err := b.Close(); err != nil {
		t.Error(err)
	}
	dialing.ClientTLS.CAFile = certificate(t, host).CAFile
	_, err = Dial(bounded(t), dialing, namespace, nil)
	refused(t, nil, err, "ClientTLS", "would refuse")

	for words, change := range map[string]func(*Config){
		"CAFile":       func(c *Config) { c.PeerTLS.CAFile = "" },
		"KeyFile":      func(c *Config) { c.PeerTLS.KeyFile = "" },
		"would refuse": func(c *Config) { c.PeerTLS = certificate(t, "127.0.0.9") },
		"unknown auth": func(c *Config) { c.PeerTLS.CAFile = certificate(t, host).CAFile },
	} {
		bad := c
		change(&bad)
		m, err := Start(bounded(t), bad)
		refused(t, m, err, "PeerTLS", words)
	}
}

// certificate makes an authority, and a certificate for a host.
func certificate(t *testing.T, host string) TLS {
	t.Helper()
	dir := t.TempDir()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	ca := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "CA of the test"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour), IsCA: true,
		BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	leaf := &x509.Certificate{SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: host}, NotBefore: ca.NotBefore,
		NotAfter: ca.NotAfter, KeyUsage: x509.KeyUsageDigitalSignature, IPAddresses: []net.IP{net.ParseIP(host)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
	files := TLS{filepath.Join(dir, "ca.pem"), filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")}
	for path, of := range map[string]*x509.Certificate{files.CAFile: ca, files.CertFile: leaf, files.KeyFile: nil} {
		block := &pem.Block{Type: "PRIVATE KEY", Bytes: private}
		if of != nil {
			der, err := x509.CreateCertificate(rand.Reader, of, ca, &key.PublicKey, key)
			if err != nil {
				t.Fatal(err)
			}
			block = &pem.Block{Type: "CERTIFICATE", Bytes: der}
		}
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return files
}

// TestMembers: members are listed and removed, and a removed member that comes back is refused.
func TestMembers(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	procs := map[string]*proc{}
	for _, name := range []string{"a", "b"} {
		s := c.setting(name)
		s.Create = true
		procs[name] = c.run(s)
	}
	s := c.setting("c").Config
	s.Create, s.Logger = true, slog.New(slog.DiscardHandler)
	m := started(t, s)
	procs["a"].await("started")
	procs["b"].await("started")
	c.progress()
	var list []MemberInfo
	ample.Wait(t, "not all members have published their addresses", func() (all bool) {
		var err error
		if list, err = m.Members(bounded(t)); err != nil {
			t.Fatal(err)
		}
		return !strings.Contains(fmt.Sprint(list), "{ ")
	})
	leaders := 0
	for i, x := range list {
		if x.Address != c.of.Members[i] || x.Learner {
			t.Errorf("member %d is %+v, want %+v", i, x, c.of.Members[i])
		}
		if x.Leader {
			leaders++
		}
	}
	if len(list) != 3 || leaders != 1 {
		t.Errorf("%d members and %d leaders, want 3 and 1", len(list), leaders)
	}
	if err := m.Remove(bounded(t), "z"); !errors.Is(err, core.ErrInvalid) {
		t.Errorf("removing an unknown member: %v, want ErrInvalid", err)
	}

	removes := func(name string) {
		ample.Wait(t, name+" cannot be removed", func() bool { // etcd first wants 5 s of connections
			err := m.Remove(bounded(t), name)
			return err == nil
		})
	}
	removes("b")
	procs["b"].fails("stopped", ErrRemoved.Error(), "call Replace")
	c.progress()
	c.start("b").fails(ErrRemoved.Error(), "call Replace")

	again := c.setting("b")
	again.Dir, again.Replace = filepath.Join(c.root, "new"), true
	b := c.run(again)
	b.await("started")
	if list, err := m.Members(bounded(t)); err != nil || len(list) != 3 || list[1].Learner {
		t.Errorf("after the replacement: %+v, %v", list, err)
	}
	c.progress()
	c.check()
}

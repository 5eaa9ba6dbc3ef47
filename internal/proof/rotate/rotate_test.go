// Package rotate_test replaces certificates and passwords while processes use them.
package rotate_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"database/sql"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	goredis "github.com/redis/go-redis/v9"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/tenure-go/tenure/backends/consul"
	"github.com/tenure-go/tenure/backends/etcd"
	"github.com/tenure-go/tenure/backends/redis"
	"github.com/tenure-go/tenure/backends/sql/mysql"
	"github.com/tenure-go/tenure/backends/sql/postgres"
	"github.com/tenure-go/tenure/backends/zookeeper"
	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/proof/ample"
	"github.com/tenure-go/tenure/internal/proof/servers"
)

var pool servers.Pool

func TestMain(m *testing.M) { os.Exit(pool.Run(m)) }

func try(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// files are the PEM files of a client, and a server's files of the same authority.
type files struct {
	t               *testing.T
	ca, cert, key   string
	server          *tls.Config
	caPEM, crt, pem []byte // of the newest authority
	end             time.Time
}

func block(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

// make creates a new authority, and certificates for a server and a client. It writes the client's
// files with write.
func (f *files) make(serial int64) {
	f.t.Helper()
	f.end = time.Now().Add(time.Duration(serial) * time.Hour).Truncate(time.Second)
	issue := func(name string, n int64, parent *x509.Certificate, by *ecdsa.PrivateKey) ([]byte, *x509.Certificate, *ecdsa.PrivateKey) {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		try(f.t, err)
		c := &x509.Certificate{SerialNumber: big.NewInt(n), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour),
			NotAfter: f.end, IsCA: parent == nil, BasicConstraintsValid: true, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
			KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
			ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
		if parent == nil {
			parent, by = c, key
		}
		der, err := x509.CreateCertificate(rand.Reader, c, parent, &key.PublicKey, by)
		try(f.t, err)
		c, err = x509.ParseCertificate(der)
		try(f.t, err)
		return der, c, key
	}
	ca, authority, by := issue("authority", serial, nil, nil)
	server, _, serverKey := issue("server", serial, authority, by)
	client, _, clientKey := issue("app", serial, authority, by)
	roots := x509.NewCertPool()
	roots.AddCert(authority)
	f.server = &tls.Config{MinVersion: tls.VersionTLS12, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: roots,
		NextProtos: []string{"h2", "http/1.1"}, Certificates: []tls.Certificate{{Certificate: [][]byte{server}, PrivateKey: serverKey}}}
	der, err := x509.MarshalPKCS8PrivateKey(clientKey)
	try(f.t, err)
	f.caPEM, f.crt, f.pem = block("CERTIFICATE", ca), block("CERTIFICATE", client), block("PRIVATE KEY", der)
}

func (f *files) write() {
	f.t.Helper()
	try(f.t, os.WriteFile(f.ca, f.caPEM, 0o600))
	try(f.t, os.WriteFile(f.cert, f.crt, 0o600))
	try(f.t, os.WriteFile(f.key, f.pem, 0o600))
}

// gate is in front of a server without TLS. It accepts connections over TLS, with the newest
// certificates.
type gate struct {
	addr     string
	upstream string
	asks     bool // PostgreSQL's clients first ask for TLS
	config   atomic.Pointer[tls.Config]
	serial   atomic.Int64 // of the client that connected last
	admitted atomic.Int64

	mu    sync.Mutex
	conns map[net.Conn]struct{}
}

func newGate(t *testing.T, upstream string, asks bool) *gate {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	try(t, err)
	g := &gate{addr: l.Addr().String(), upstream: upstream, asks: asks, conns: map[net.Conn]struct{}{}}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			raw, err := l.Accept()
			if err != nil {
				return
			}
			g.mu.Lock()
			g.conns[raw] = struct{}{}
			g.mu.Unlock()
			all.Go(func() {
				defer func() {
					raw.Close()
					g.mu.Lock()
					delete(g.conns, raw)
					g.mu.Unlock()
				}()
				g.serve(raw)
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		g.cut()
		all.Wait()
	})
	return g
}

func (g *gate) serve(raw net.Conn) {
	if g.asks {
		if _, err := io.ReadFull(raw, make([]byte, 8)); err != nil {
			return
		}
		if _, err := raw.Write([]byte("S")); err != nil {
			return
		}
	}
	in := raw
	if cfg := g.config.Load(); cfg != nil {
		secure := tls.Server(raw, cfg)
		if secure.Handshake() != nil {
			return
		}
		g.serial.Store(secure.ConnectionState().PeerCertificates[0].SerialNumber.Int64())
		in = secure
	}
	g.admitted.Add(1)
	out, err := net.Dial("tcp", g.upstream)
	if err != nil {
		return
	}
	back := make(chan struct{})
	go func() {
		defer close(back)
		_, _ = io.Copy(in, out)
		raw.Close()
	}()
	_, _ = io.Copy(out, in)
	out.Close()
	<-back
}

// cut ends all connections.
func (g *gate) cut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for c := range g.conns {
		c.Close()
	}
}

// work appends numbers under one lease, and retries after a failure.
type work struct {
	*testing.T
	b      core.Backend
	mu     sync.Mutex
	acked  map[string]bool
	last   error
	grants int
}

func start(t *testing.T, b core.Backend) *work {
	w := &work{T: t, b: b, acked: map[string]bool{}}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- core.RunSingleton(ctx, b, "job", w.append, &core.Options{Node: "a", TTL: ample.Time, LockDir: "none",
			Heartbeat: 200 * time.Millisecond, Logger: slog.New(slog.DiscardHandler)})
	}()
	t.Cleanup(func() {
		stop()
		<-ended
	})
	return w
}

func (w *work) append(ctx context.Context, l *core.Lease) error {
	w.mu.Lock()
	w.grants++
	w.mu.Unlock()
	for i := 0; ctx.Err() == nil; i++ {
		n := strconv.Itoa(i)
		call, cancel := context.WithTimeout(l.Context(), 5*time.Second)
		_, err := l.Append(call, []byte(n))
		cancel()
		w.mu.Lock()
		if w.last = err; err == nil {
			w.acked[n] = true
		}
		w.mu.Unlock()
		time.Sleep(10 * time.Millisecond)
	}
	return nil
}

// goesOn waits for further appends.
func (w *work) goesOn(when string) {
	w.Helper()
	count := func() int {
		w.mu.Lock()
		defer w.mu.Unlock()
		return len(w.acked)
	}
	from := count()
	if !ample.Soon(w.Context(), func() bool { return count() >= from+10 }) {
		w.Fatalf("%s: no appends: %v", when, w.last)
	}
}

// judge checks that each acknowledged append is in the log, under one lease.
func (w *work) judge() {
	w.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	written := map[string]bool{}
	for after := core.Seq(0); ; {
		var page *driver.LogPage
		ample.Wait(w, "the log can be read", func() (ok bool) { // a connection may have been cut
			var err error
			page, err = w.b.ReadLog(w.Context(), "job", after, 1000)
			return err == nil
		})
		if len(page.Entries) == 0 {
			break
		}
		for _, e := range page.Entries {
			written[string(e.Payload)], after = true, e.Seq
		}
	}
	lost := 0
	for n := range w.acked {
		if !written[n] {
			lost++
		}
	}
	w.Logf("%d appends, %d lost, %d leases", len(w.acked), lost, w.grants)
	if lost > 0 || w.grants != 1 {
		w.Errorf("%d of %d acknowledged appends are lost; %d leases, want 1", lost, len(w.acked), w.grants)
	}
}

// TestCertificatesRotate replaces the authority and the client's certificate twice, on each store
// whose certificates are in files. In between, the files are half-written.
func TestCertificatesRotate(t *testing.T) {
	for _, s := range []struct {
		kind servers.Kind
		open func(t *testing.T, at string, f *files) (core.Backend, error)
	}{
		{servers.Etcd, func(t *testing.T, at string, f *files) (core.Backend, error) {
			return open(t, etcd.Opener(), func(s *etcd.Settings) {
				*s = etcd.Settings{Endpoints: []string{"https://" + at}, CAFile: f.ca, CertFile: f.cert, KeyFile: f.key, Namespace: t.Name()}
				s.Create = true
			})
		}},
		{servers.Consul, func(t *testing.T, at string, f *files) (core.Backend, error) {
			return open(t, consul.Opener(), func(s *consul.Settings) {
				s.Config = consul.Config{Address: "https://" + at, CAFile: f.ca, CertFile: f.cert, KeyFile: f.key}
				s.Namespace, s.Create = t.Name(), true
			})
		}},
		{servers.Redis, func(t *testing.T, at string, f *files) (core.Backend, error) {
			return open(t, redis.Opener(), func(s *redis.Settings) {
				*s = redis.Settings{Addrs: []string{at}, CAFile: f.ca, CertFile: f.cert, KeyFile: f.key, Namespace: t.Name()}
				s.Create = true
			})
		}},
		{servers.ZooKeeper, func(t *testing.T, at string, f *files) (core.Backend, error) {
			return open(t, zookeeper.Opener(), func(s *zookeeper.Settings) {
				*s = zookeeper.Settings{Servers: []string{at}, CAFile: f.ca, CertFile: f.cert, KeyFile: f.key, Namespace: t.Name()}
				s.Create = true
			})
		}},
		{servers.Postgres, func(t *testing.T, at string, f *files) (core.Backend, error) {
			dsn := pool.Get(t, servers.Postgres, nil).Database(t).At(at).With("sslmode", "verify-full").With("sslrootcert", f.ca).
				With("sslcert", f.cert).With("sslkey", f.key)
			return open(t, postgres.Opener(), func(s *postgres.Settings) {
				s.DSN, s.Namespace, s.Create, s.Migrate = driver.Secret(dsn.Reveal()), t.Name(), true, true
			})
		}},
	} {
		t.Run(string(s.kind), func(t *testing.T) {
			g := newGate(t, pool.Get(t, s.kind, nil).Addr(), s.kind == servers.Postgres)
			dir := t.TempDir()
			f := &files{t: t, ca: filepath.Join(dir, "ca.pem"), cert: filepath.Join(dir, "app.pem"), key: filepath.Join(dir, "app.key")}
			f.make(1)
			f.write()
			g.config.Store(f.server)
			b, err := s.open(t, g.addr, f)
			try(t, err)
			t.Cleanup(func() { b.Close() })
			w := start(t, b)
			w.goesOn("at the beginning")
			for serial := int64(2); serial <= 3; serial++ {
				f.make(serial)
				for _, half := range []string{f.ca, f.key, f.cert} {
					try(t, os.WriteFile(half, []byte("half of it"), 0o600))
				}
				if serial == 2 { // PostgreSQL's DSN is read at the beginning, so its first value is expected from all
					from := g.admitted.Load()
					g.cut()
					ample.Wait(t, "nobody connects beside files that are half-written", func() bool { return g.admitted.Load() > from })
				}
				f.write()
				g.config.Store(f.server)
				g.cut()
				w.goesOn("with another certificate")
				if got := g.serial.Load(); got != serial {
					t.Errorf("the newest connection has certificate %d, want %d", got, serial)
				}
				if end := b.(interface{ CertificateEnd() time.Time }).CertificateEnd(); !end.Equal(f.end) {
					t.Errorf("the certificate ends at %v, want %v", end, f.end)
				}
			}
			w.judge()
		})
	}
}

// open opens a backend by its settings.
func open[S any](t *testing.T, o driver.Opener, set func(*S)) (core.Backend, error) {
	ctx, cancel := context.WithTimeout(t.Context(), ample.Time)
	defer cancel()
	return o.Open(ctx, func(to any) error {
		set(to.(*S))
		return nil
	})
}

// TestPasswordRotates changes a user's password twice: first in the file and then on the server,
// and then in the reverse order. Each time, all connections end.
func TestPasswordRotates(t *testing.T) {
	for _, s := range []struct {
		kind  servers.Kind
		ready func(t *testing.T, s *servers.Server, password string) (set func(former, password string))
		open  func(t *testing.T, s *servers.Server, at, file string) (core.Backend, error)
	}{
		{servers.Etcd, etcdUser, func(t *testing.T, _ *servers.Server, at, file string) (core.Backend, error) {
			return open(t, etcd.Opener(), func(s *etcd.Settings) {
				*s = etcd.Settings{Endpoints: []string{"http://" + at}, Username: "app", PasswordFile: file, Namespace: "n"}
				s.Create = true
			})
		}},
		{servers.Redis, redisUser, func(t *testing.T, _ *servers.Server, at, file string) (core.Backend, error) {
			return open(t, redis.Opener(), func(s *redis.Settings) {
				*s = redis.Settings{Addrs: []string{at}, Username: "app", PasswordFile: file, Namespace: t.Name()}
				s.Create = true
			})
		}},
		{servers.ZooKeeper, zookeeperUser, func(t *testing.T, _ *servers.Server, at, file string) (core.Backend, error) {
			return open(t, zookeeper.Opener(), func(s *zookeeper.Settings) {
				*s = zookeeper.Settings{Servers: []string{at}, PasswordFile: file, Namespace: t.Name()}
				s.Root, s.User, s.Create = "/rotate", "app", true
			})
		}},
		{servers.Postgres, postgresUser, func(t *testing.T, s *servers.Server, at, file string) (core.Backend, error) {
			return open(t, postgres.Opener(), func(x *postgres.Settings) {
				x.DSN, x.PasswordFile = driver.Secret(s.Admin().Database("rotate").As("app", "").At(at).Reveal()), file
				x.Namespace, x.Create, x.Migrate = t.Name(), true, true
			})
		}},
		{servers.MariaDB, mariadbUser, func(t *testing.T, s *servers.Server, at, file string) (core.Backend, error) {
			return open(t, mysql.Opener(), func(x *mysql.Settings) {
				x.DSN, x.PasswordFile = driver.Secret(s.Admin().Database("rotate").As("app", "").At(at).Reveal()), file
				x.Namespace, x.Create, x.Migrate = t.Name(), true, true
			})
		}},
	} {
		t.Run(string(s.kind), func(t *testing.T) {
			server := servers.New(t, s.kind, &servers.Options{NoSync: true})
			g := newGate(t, server.Addr(), false)
			file := filepath.Join(t.TempDir(), "password")
			write := func(password string) { try(t, os.WriteFile(file, []byte(password+"\n"), 0o600)) }
			write("first")
			set := s.ready(t, server, "first")
			b, err := s.open(t, server, g.addr, file)
			try(t, err)
			t.Cleanup(func() { b.Close() })
			w := start(t, b)
			w.goesOn("at the beginning")
			write("second")
			if s.kind == servers.ZooKeeper {
				g.cut() // the running process proves both, before nodes belong to the second
				w.goesOn("with both passwords")
			}
			set("first", "second")
			g.cut()
			w.goesOn("with another password")
			set("second", "third")
			if s.kind != servers.ZooKeeper { // it refuses calls on existing connections
				g.cut()
			}
			time.Sleep(100 * time.Millisecond) // calls fail
			write("third")
			w.goesOn("with another password that came late")
			if s.kind == servers.ZooKeeper {
				set("second", "third") // nodes that were made during the first walk
			}
			g.cut()
			w.goesOn("at the end")
			w.judge()
			again, err := s.open(t, server, g.addr, file)
			try(t, err)
			defer again.Close()
			if page, err := again.ReadLog(t.Context(), "job", 0, 1); err != nil || len(page.Entries) != 1 {
				t.Errorf("a new process with the third password reads %d entries: %v", len(page.Entries), err)
			}
		})
	}
}

func etcdUser(t *testing.T, s *servers.Server, password string) func(string, string) {
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{s.Addr()}})
	try(t, err)
	defer c.Close()
	must := func(_ any, err error) { t.Helper(); try(t, err) }
	for name, password := range map[string]string{"root": "root", "app": password} {
		must(c.RoleAdd(t.Context(), name))
		must(c.UserAdd(t.Context(), name, password))
		must(c.UserGrantRole(t.Context(), name, name))
	}
	must(c.RoleGrantPermission(t.Context(), "app", "n/", "n0", clientv3.PermissionType(clientv3.PermReadWrite)))
	must(c.RoleGrantPermission(t.Context(), "app", "n!", "n!t", clientv3.PermissionType(clientv3.PermReadWrite)))
	must(c.AuthEnable(t.Context()))
	root, err := clientv3.New(clientv3.Config{Endpoints: []string{s.Addr()}, Username: "root", Password: "root"})
	try(t, err)
	t.Cleanup(func() { root.Close() })
	return func(_, password string) { must(root.UserChangePassword(t.Context(), "app", password)) }
}

func redisUser(t *testing.T, s *servers.Server, password string) func(string, string) {
	c := goredis.NewClient(&goredis.Options{Addr: s.Addr()})
	t.Cleanup(func() { c.Close() })
	set := func(_, password string) {
		t.Helper()
		try(t, c.Do(t.Context(), "ACL", "SETUSER", "app", "on", "resetpass", ">"+password, "~*", "&*", "+@all").Err())
	}
	set("", password)
	return set
}

func zookeeperUser(t *testing.T, s *servers.Server, password string) func(string, string) {
	c, _, err := zk.Connect([]string{s.Addr()}, 10*time.Second, zk.WithLogger(log.New(io.Discard, "", 0)))
	try(t, err)
	t.Cleanup(c.Close)
	try(t, c.AddAuth("digest", []byte(s.Admin().User()+":"+s.Admin().Password())))
	var walk func(node, password string, alone bool)
	walk = func(node, password string, alone bool) {
		acl, _, err := c.GetACL(node)
		if errors.Is(err, zk.ErrNoNode) {
			return
		}
		try(t, err)
		more := zk.DigestACL(acl[0].Perms, "app", password)
		if !alone {
			more = append(more, acl...)
		}
		if _, err := c.SetACL(node, more, -1); !errors.Is(err, zk.ErrNoNode) {
			try(t, err)
		}
		children, _, err := c.Children(node)
		if errors.Is(err, zk.ErrNoNode) {
			return
		}
		try(t, err)
		for _, name := range children {
			walk(node+"/"+name, password, alone)
		}
	}
	return func(former, password string) { walk("/rotate", password, former != "first") }
}

func postgresUser(t *testing.T, s *servers.Server, password string) func(string, string) {
	return sqlUser(t, "pgx", s.Admin(), func(exec func(string)) {
		exec("CREATE ROLE app LOGIN PASSWORD '" + password + "'")
		exec("CREATE DATABASE rotate OWNER app")
	}, "ALTER ROLE app PASSWORD '%s'")
}

func mariadbUser(t *testing.T, s *servers.Server, password string) func(string, string) {
	return sqlUser(t, "mysql", s.Admin(), func(exec func(string)) {
		exec("CREATE USER app IDENTIFIED BY '" + password + "'")
		exec("CREATE DATABASE rotate")
		exec("GRANT ALL ON rotate.* TO app")
	}, "ALTER USER app IDENTIFIED BY '%s'")
}

func sqlUser(t *testing.T, name string, admin servers.DSN, ready func(exec func(string)), change string) func(string, string) {
	db, err := sql.Open(name, admin.Reveal())
	try(t, err)
	t.Cleanup(func() { db.Close() })
	exec := func(statement string) {
		t.Helper()
		_, err := db.ExecContext(t.Context(), statement)
		try(t, err)
	}
	ready(exec)
	return func(_, password string) { exec(fmt.Sprintf(change, password)) }
}

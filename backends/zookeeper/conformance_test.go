package zookeeper

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tenure-go/tenure/backends/kv"
	"github.com/tenure-go/tenure/conformance"
	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/changelog"
	"github.com/tenure-go/tenure/internal/kvkeys"
	"github.com/tenure-go/tenure/internal/proof/faultproxy"
	"github.com/tenure-go/tenure/internal/proof/servers"
)

// TestConformance runs the suite as the documentation's run-time user. There is also an
// administrator.
func TestConformance(t *testing.T) {
	server := pool.Get(t, servers.ZooKeeper, nil)
	conformance.Test(t, harness(t, nil, server))
}

// TestConformanceEnsemble runs the suite on three members.
func TestConformanceEnsemble(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: make check runs it")
	}
	cluster := servers.NewCluster(t, servers.ZooKeeper, 3, nil)
	conformance.Test(t, harness(t, nil, cluster.Members()...))
}

// TestDoors runs the cases about claims, commits and fences across two members of an ensemble.
func TestDoors(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("-short: make check runs it")
	}
	members := servers.NewCluster(t, servers.ZooKeeper, 3, &servers.Options{NoSync: true}).Members()
	user, super := members[0].User(), members[0].Admin()
	other := suiteStore{options: Options{Create: true, Root: root, User: user.User(), Password: driver.Secret(user.Password()),
		Admins: []string{"digest:" + zk.DigestACL(0, super.User(), super.Password())[0].ID}}}
	conformance.TestDoors(t, harness(t, nil, members[0]), func(ctx context.Context, namespace string) (driver.Backend, error) {
		return other.open(ctx, addrs(members[1:2]), namespace, nil, asItIs, asItIs)
	})
}

// TestConformanceNetwork runs the cases about networks through a proxy that parses
// only the boundaries of packets.
func TestConformanceNetwork(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: make check runs it")
	}
	server := pool.Get(t, servers.ZooKeeper, nil)
	conformance.Test(t, harness(t, func(t testing.TB) (string, *conformance.Wire) {
		proxy, err := faultproxy.New(server.Addr(), &faultproxy.Options{RequestFramer: frame})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { proxy.Close() })
		return proxy.Addr(), proxyWire(t, proxy)
	}, server))
}

// TestConformanceRestart runs the cases in which the server is killed and restarted.
func TestConformanceRestart(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("-short: make check runs it")
	}
	server := servers.New(t, servers.ZooKeeper, nil)
	h := harness(t, nil, server)
	h.Serial = true
	create := h.New
	h.New = func(t conformance.T) *conformance.Store {
		s := create(t)
		s.Restart = server.Restart
		return s
	}
	conformance.TestCases(t, h, "Acquire/TokensIncreaseAcrossStoreRestart", "Chaos/RestartStore")
}

// serverVersion asks a server for its version. The client's own command cannot parse the answer
// from Debian's build.
func serverVersion(addr string) (string, error) {
	c, err := net.DialTimeout("tcp", addr, 5*time.Second)
	if err != nil {
		return "", err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
		return "", err
	}
	if _, err := io.WriteString(c, "srvr"); err != nil {
		return "", err
	}
	answer, err := io.ReadAll(io.LimitReader(c, 1<<16))
	if err != nil {
		return "", err
	}
	version := regexp.MustCompile(`^Zookeeper version: ([0-9.]+)`).FindSubmatch(answer)
	if version == nil {
		return "", fmt.Errorf("srvr answers %q", answer)
	}
	return string(version[1]), nil
}

// harness runs the suite on the members of an ensemble. Each case has a separate namespace. Without
// a network, the faults occur between the backend and its client.
func harness(
	t *testing.T, network func(testing.TB) (string, *conformance.Wire), members ...*servers.Server,
) conformance.Harness {
	admin := client(t, members...)
	user := members[0].User()
	super := "digest:" + zk.DigestACL(0, members[0].Admin().User(), members[0].Admin().Password())[0].ID
	suite := "suite-" + rand.Text()[:8]
	version, err := serverVersion(members[0].Addr())
	if err != nil {
		t.Fatal(err)
	}
	var cases atomic.Int64
	return conformance.Harness{
		Name:    backendName,
		Version: "ZooKeeper " + version,
		New: func(conformance.T) *conformance.Store {
			s := &suiteStore{
				admin: admin, servers: addrs(members), count: new(traffic),
				namespace: fmt.Sprintf("%s/case%d", suite, cases.Add(1)), super: members[0].Admin(),
			}
			s.options = Options{Create: true, Root: root, User: user.User(), Password: driver.Secret(user.Password()),
				Admins: []string{super}, dial: s.count.dial}
			return s.conformance(t, network)
		},
	}
}

const root = "/tests/tenure"

type suiteStore struct {
	admin     *zk.Conn
	servers   []string
	namespace string
	options   Options
	super     servers.DSN
	count     *traffic
}

func (s *suiteStore) open(ctx context.Context, servers []string, namespace string, change func(*Options),
	below func(changelog.Store) changelog.Store, whole func(kv.Store) kv.Store) (driver.Backend, error) {
	o := s.options
	if change != nil {
		change(&o)
	}
	b, err := open(ctx, servers, namespace, &o, below, whole)
	if err != nil {
		return nil, err
	}
	return b, nil
}

func asItIs[T any](v T) T { return v }

func (s *suiteStore) conformance(
	t testing.TB, network func(testing.TB) (string, *conformance.Wire),
) *conformance.Store {
	keys, err := kvkeys.New(s.namespace)
	if err != nil {
		t.Fatal(err)
	}
	node := s.options.Root + "/" + s.namespace
	store := &conformance.Store{
		Open: func(ctx context.Context) (driver.Backend, error) {
			return s.open(ctx, s.servers, s.namespace, nil, asItIs, asItIs)
		},
		OpenExisting: func(ctx context.Context) (driver.Backend, error) {
			return s.open(ctx, s.servers, s.namespace, func(o *Options) { o.Create = false }, asItIs, asItIs)
		},
		OpenNamespace: func(ctx context.Context, suffix string) (driver.Backend, error) {
			return s.open(ctx, s.servers, s.namespace+suffix, nil, asItIs, asItIs)
		},
		OpenLying: func(ctx context.Context) (driver.Backend, error) {
			return s.open(ctx, s.servers, s.namespace, nil, func(s changelog.Store) changelog.Store { return lying{s} },
				asItIs)
		},
		OpenFaulty: func(ctx context.Context) (driver.Backend, *conformance.Wire, error) {
			if network != nil {
				addr, wire := network(t)
				b, err := s.open(ctx, []string{addr}, s.namespace, nil, asItIs, asItIs)
				return b, wire, err
			}
			wrap, wire := conformance.KVFaults()
			b, err := s.open(ctx, s.servers, s.namespace, nil, asItIs, wrap)
			return b, wire, err
		},
		Calls: s.count.calls,
		// The change logs are the whole history.
		Compact: func(context.Context) error { return s.removeBelow(node + "/!feed") },
		Wipe:    func(context.Context) error { return s.removeBelow(node) },
		Snapshot: func(context.Context) (func(context.Context) error, error) {
			backup, err := s.copyBelow(node)
			return func(context.Context) error {
				if err := s.removeBelow(node); err != nil {
					return err
				}
				return s.makeAgain(backup)
			}, err
		},
		Deny: func(context.Context) (func(context.Context) error, error) {
			all, err := s.copyBelow(node)
			set := func(acl func(copied) []zk.ACL) (err error) {
				for _, n := range all {
					if _, err := s.admin.SetACL(n.node, acl(n), -1); err != nil && !errors.Is(err, zk.ErrNoNode) {
						return err
					}
				}
				return nil
			}
			if err == nil {
				err = set(func(copied) []zk.ACL { return zk.WorldACL(zk.PermRead) })
			}
			return func(context.Context) error { return set(func(n copied) []zk.ACL { return n.acl }) }, err
		},
		Tamper: func(_ context.Context, what conformance.Tampering, name string) error {
			return s.tamper(keys, what, name)
		},
		RaiseFloor: s.raiseFloor,
		Guards:     []conformance.Guard{s.guard()},
	}
	if len(s.servers) > 1 {
		store.OpenSeveral = func(ctx context.Context) (driver.Backend, []*conformance.Wire, error) {
			return s.several(ctx, t)
		}
	}
	return store
}

// raiseFloor acts as the administrator who may write the identity.
func (s *suiteStore) raiseFloor(ctx context.Context, above driver.Token) error {
	o := s.options
	o.User, o.Password = s.super.User(), driver.Secret(s.super.Password())
	return RaiseFloor(ctx, s.servers, s.namespace, above, &o)
}

// guard is GuardOps, with texts in nodes beside the suite's.
func (s *suiteStore) guard() conformance.Guard {
	dir := "/texts-" + strings.ReplaceAll(s.namespace, "/", "-")
	return conformance.Guard{
		Name: "GuardOps",
		Begin: func(ctx context.Context, b driver.Backend, fence driver.Fence) (func(context.Context, string) error, error) {
			guard, err := b.(*Backend).GuardOps(ctx, fence)
			if err != nil {
				return nil, err
			}
			if err := makeFixed(s.admin, dir, zk.WorldACL(zk.PermAll)); err != nil {
				return nil, err
			}
			return func(_ context.Context, text string) error {
				put := &zk.CreateRequest{Path: dir + "/" + text, Acl: zk.WorldACL(zk.PermAll)}
				_, err := s.admin.Multi(append(slices.Clone(guard), put)...)
				if errors.Is(err, zk.ErrBadVersion) || errors.Is(err, zk.ErrNoNode) {
					err = driver.ErrFenced
				}
				return err
			}, nil
		},
		Texts: func(context.Context) ([]string, error) {
			names, _, err := s.admin.Children(dir)
			if errors.Is(err, zk.ErrNoNode) {
				return nil, nil
			}
			return names, err
		},
	}
}

// several opens a backend that reaches each server through a proxy.
func (s *suiteStore) several(ctx context.Context, t testing.TB) (driver.Backend, []*conformance.Wire, error) {
	var through []string
	var wires []*conformance.Wire
	for _, server := range s.servers {
		proxy, err := faultproxy.New(server, &faultproxy.Options{RequestFramer: frame})
		if err != nil {
			return nil, nil, err
		}
		t.Cleanup(func() { proxy.Close() })
		through, wires = append(through, proxy.Addr()), append(wires, proxyWire(t, proxy))
	}
	b, err := s.open(ctx, through, s.namespace, nil, asItIs, asItIs)
	return b, wires, err
}

// below lists the nodes below a node, parents first.
func (s *suiteStore) below(node string) ([]string, error) {
	names, _, err := s.admin.Children(node)
	if err != nil && !errors.Is(err, zk.ErrNoNode) {
		return nil, err
	}
	var all []string
	for _, name := range names {
		more, err := s.below(node + "/" + name)
		if err != nil {
			return nil, err
		}
		all = append(append(all, node+"/"+name), more...)
	}
	return all, nil
}

// removeBelow removes the nodes below a node, including nodes that others create there during the
// removal.
func (s *suiteStore) removeBelow(node string) error {
	for {
		all, err := s.below(node)
		if err != nil || len(all) == 0 {
			return err
		}
		for _, n := range slices.Backward(all) {
			if err := s.admin.Delete(n, -1); err != nil && !errors.Is(err, zk.ErrNoNode) &&
				!errors.Is(err, zk.ErrNotEmpty) {
				return err
			}
		}
	}
}

type copied struct {
	node  string
	value []byte
	acl   []zk.ACL
}

func (s *suiteStore) copyBelow(node string) ([]copied, error) {
	all, err := s.below(node)
	if err != nil {
		return nil, err
	}
	var out []copied
	for _, n := range all {
		value, _, err := s.admin.Get(n)
		if err != nil {
			return nil, err
		}
		acl, _, err := s.admin.GetACL(n)
		if err != nil {
			return nil, err
		}
		out = append(out, copied{n, value, acl})
	}
	return out, nil
}

func (s *suiteStore) makeAgain(all []copied) error {
	for _, c := range all {
		if _, err := s.admin.Create(c.node, c.value, 0, c.acl); err != nil && !errors.Is(err, zk.ErrNodeExists) {
			return err
		}
	}
	return nil
}

func (s *suiteStore) tamper(keys kvkeys.Keys, what conformance.Tampering, name string) error {
	p := paths{s.options.Root}
	set := func(node, value string) error {
		_, err := s.admin.Set(node, []byte(value), -1)
		return err
	}
	key, value, ok := conformance.KVDamage(string(keys), what, name, 1<<20-1<<10)
	_, shard, err := p.node(key)
	if err != nil {
		return err
	}
	if ok && what == conformance.OddItem {
		_, err := s.admin.Create(shard, []byte(value), 0, zk.WorldACL(zk.PermAll))
		return err
	}
	if ok {
		return set(shard, value)
	}
	switch what {
	case conformance.RewriteShard:
		value, _, err := s.admin.Get(shard)
		if err != nil {
			return err
		}
		return set(shard, string(value))
	case conformance.RemoveShard, conformance.RemoveEntry:
		return s.admin.Delete(shard, -1)
	}
	return errors.ErrUnsupported
}

type lying struct{ changelog.Store }

func (l lying) Apply(ctx context.Context, b *changelog.Batch) (*changelog.Outcome, error) {
	c := &changelog.Batch{Batch: kv.Batch{Heartbeat: b.Heartbeat, Txns: slices.Clone(b.Txns)}, Piggyback: b.Piggyback}
	for i := range c.Txns {
		c.Txns[i].If = nil
	}
	return l.Store.Apply(ctx, c)
}

// frame returns the length of a packet.
func frame(b []byte) int {
	if len(b) < 4 {
		return 0
	}
	return 4 + int(b[0])<<24 + int(b[1])<<16 + int(b[2])<<8 + int(b[3])
}

// isWrite reports whether a packet is a create, delete, setData or multi.
func isWrite(frame []byte) bool {
	return len(frame) >= 12 && frame[8] == 0 && frame[9] == 0 && frame[10] == 0 &&
		slices.Contains([]byte{1, 2, 5, 14}, frame[11])
}

func proxyWire(t testing.TB, p *faultproxy.Proxy) *conformance.Wire {
	must := func(err error) {
		if err != nil {
			t.Error(err)
		}
	}
	set := func(f faultproxy.Faults) func() func() {
		return func() func() {
			must(p.Set(f))
			return func() { must(p.Set(faultproxy.Faults{})) }
		}
	}
	return &conformance.Wire{
		DropRequests: set(faultproxy.Faults{Requests: faultproxy.Flow{Swallow: true}}),
		DropReplies:  set(faultproxy.Faults{Replies: faultproxy.Flow{Swallow: true}}),
		Hold:         set(faultproxy.Faults{Requests: faultproxy.Flow{Hold: true}}),
		Duplicate: set(faultproxy.Faults{Requests: faultproxy.Flow{Decide: func(frame []byte) faultproxy.Verdict {
			if isWrite(frame) {
				return faultproxy.Duplicate
			}
			return faultproxy.Pass
		}}}),
		Cut: func() func() {
			must(p.Refuse())
			p.Reset()
			return func() { must(p.Admit()) }
		},
	}
}

package consul

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/hashicorp/consul/api"

	"github.com/tenure-go/tenure/conformance"
	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/kvkeys"
	"github.com/tenure-go/tenure/internal/proof/faultproxy"
	"github.com/tenure-go/tenure/internal/proof/servers"
)

func TestConformance(t *testing.T) {
	conformance.Test(t, harness(t, pool.Get(t, servers.Consul, nil)))
}

// TestConformanceRestart runs the cases in which the server is killed and restarted, or goes back
// to a snapshot.
func TestConformanceRestart(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("-short: make check runs it")
	}
	server := servers.New(t, servers.Consul, nil)
	h := harness(t, server)
	h.Serial = true
	create := h.New
	h.New = func(t conformance.T) *conformance.Store {
		s := create(t)
		s.Restart = server.Restart
		s.Snapshot = func(ctx context.Context) (func(context.Context) error, error) { return snapshot(ctx, server) }
		return s
	}
	conformance.TestCases(t, h, "Acquire/TokensIncreaseAcrossStoreRestart", "Chaos/RestartStore",
		"Chaos/RestoreOlderStore")
}

// TestConformanceNarrow runs the case in which the server restarts with a lower limit for requests.
func TestConformanceNarrow(t *testing.T) {
	t.Parallel()
	server := servers.New(t, servers.Consul, nil)
	h := harness(t, server)
	create := h.New
	h.New = func(t conformance.T) *conformance.Store {
		s := create(t)
		s.Narrow = func(ctx context.Context) (func(context.Context) error, error) {
			return func(ctx context.Context) error { return server.Reconfigure(ctx) },
				server.Reconfigure(ctx, "limits = { kv_max_value_size = 65536, txn_max_req_len = 65536 }")
		}
		return s
	}
	report, err := conformance.Check(t.Context(), h, "Commit/RefusedAsOne")
	if err != nil {
		t.Fatal(err)
	}
	if err := report.Err(); err != nil {
		t.Error(err)
	}
	t.Log(report)
}

func client(server *servers.Server) (*api.Client, error) {
	return api.NewClient(&api.Config{Address: server.Addr()})
}

func snapshot(ctx context.Context, server *servers.Server) (func(context.Context) error, error) {
	c, err := client(server)
	if err != nil {
		return nil, err
	}
	backup, _, err := c.Snapshot().Save(new(api.QueryOptions).WithContext(ctx))
	if err != nil {
		return nil, err
	}
	defer backup.Close()
	data, err := io.ReadAll(backup)
	return func(ctx context.Context) error {
		return c.Snapshot().Restore(new(api.WriteOptions).WithContext(ctx), bytes.NewReader(data))
	}, err
}

// harness runs the suite on a server. Each case has a separate namespace.
func harness(t *testing.T, server *servers.Server) conformance.Harness {
	admin, err := client(server)
	if err != nil {
		t.Fatal(err)
	}
	self, err := admin.Agent().Self()
	if err != nil {
		t.Fatal(err)
	}
	suite := "suite/" + rand.Text()[:8]
	var cases atomic.Int64
	return conformance.Harness{
		Name:    backendName,
		Version: fmt.Sprintf("Consul %v", self["Config"]["Version"]),
		New: func(conformance.T) *conformance.Store {
			s := &suiteStore{server: server, admin: admin, namespace: fmt.Sprintf("%s/case%d", suite, cases.Add(1)),
				count: new(traffic)}
			return s.conformance(t)
		},
	}
}

type suiteStore struct {
	server    *servers.Server
	admin     *api.Client
	namespace string
	count     *traffic
}

func (s *suiteStore) open(
	ctx context.Context, t testing.TB, n *network, namespace string, o Options,
) (driver.Backend, error) {
	b, err := open(ctx, []*slots{n.slots(t, s.server)}, namespace, &o)
	if err != nil {
		return nil, err
	}
	return b, nil
}

func (s *suiteStore) conformance(t testing.TB) *conformance.Store {
	keys, err := kvkeys.New(s.namespace)
	if err != nil {
		t.Fatal(err)
	}
	create := Options{Create: true}
	return &conformance.Store{
		Open: func(ctx context.Context) (driver.Backend, error) {
			return s.open(ctx, t, newNetwork(s.count), s.namespace, create)
		},
		OpenExisting: func(ctx context.Context) (driver.Backend, error) {
			return s.open(ctx, t, newNetwork(s.count), s.namespace, Options{})
		},
		OpenNamespace: func(ctx context.Context, suffix string) (driver.Backend, error) {
			return s.open(ctx, t, newNetwork(s.count), s.namespace+suffix, create)
		},
		OpenLying: func(ctx context.Context) (driver.Backend, error) {
			n := newNetwork(s.count)
			n.alter = lie
			return s.open(ctx, t, n, s.namespace, create)
		},
		OpenFaulty: func(ctx context.Context) (driver.Backend, *conformance.Wire, error) {
			n := newNetwork(s.count)
			b, err := s.open(ctx, t, n, s.namespace, create)
			return b, n.wire(), err
		},
		Calls: s.count.calls,
		// The change logs are the whole history.
		Compact: func(ctx context.Context) error { return s.removeAll(ctx, keys.ChangeLogs()) },
		Wipe:    func(ctx context.Context) error { return s.removeAll(ctx, s.namespace+"/") },
		Tamper: func(ctx context.Context, what conformance.Tampering, name string) error {
			return s.tamper(ctx, keys, what, name)
		},
		RaiseFloor: func(ctx context.Context, above driver.Token) error {
			return RaiseFloor(ctx, s.admin, s.namespace, above, nil)
		},
		Guards: []conformance.Guard{guardOf(s.admin, "texts/"+s.namespace+"/")},
	}
}

// guardOf is GuardOps, with texts in keys below a prefix.
func guardOf(client *api.Client, prefix string) conformance.Guard {
	return conformance.Guard{
		Name: "GuardOps",
		Begin: func(ctx context.Context, b driver.Backend, fence driver.Fence) (func(context.Context, string) error, error) {
			guard, err := b.(*Backend).GuardOps(ctx, fence)
			if err != nil {
				return nil, err
			}
			return func(ctx context.Context, text string) error {
				put := &api.TxnOp{KV: &api.KVTxnOp{Verb: api.KVSet, Key: prefix + text}}
				ok, res, _, err := client.Txn().Txn(append(guard, put), new(api.QueryOptions).WithContext(ctx))
				switch {
				case err != nil || ok:
					return err
				case res.Errors[0].OpIndex < len(guard):
					return driver.ErrFenced
				}
				return fmt.Errorf("the write was refused: %s", res.Errors[0].What)
			}, nil
		},
		Texts: func(ctx context.Context) ([]string, error) {
			names, _, err := client.KV().Keys(prefix, "", new(api.QueryOptions).WithContext(ctx))
			for i := range names {
				names[i] = strings.TrimPrefix(names[i], prefix)
			}
			return names, err
		},
	}
}

func (s *suiteStore) removeAll(ctx context.Context, prefix string) error {
	_, err := s.admin.KV().DeleteTree(prefix, new(api.WriteOptions).WithContext(ctx))
	return err
}

func (s *suiteStore) tamper(ctx context.Context, keys kvkeys.Keys, what conformance.Tampering, name string) error {
	key, value, ok := conformance.KVDamage(string(keys), what, name, 500<<10)
	if ok {
		_, err := s.admin.KV().Put(&api.KVPair{Key: key, Value: []byte(value)}, new(api.WriteOptions).WithContext(ctx))
		return err
	}
	switch what {
	case conformance.RewriteShard:
		p, _, err := s.admin.KV().Get(key, new(api.QueryOptions).WithContext(ctx))
		if err != nil || p == nil {
			return errors.Join(err, fmt.Errorf("there is no record %q", key))
		}
		p.Flags++ // otherwise Consul would see no change
		_, err = s.admin.KV().Put(p, new(api.WriteOptions).WithContext(ctx))
		return err
	case conformance.RemoveShard, conformance.RemoveEntry:
		_, err := s.admin.KV().Delete(key, new(api.WriteOptions).WithContext(ctx))
		return err
	}
	return errors.ErrUnsupported
}

// TestConformanceThree runs the suite on three servers. The backends use one server, which need not
// be the leader. One case uses all servers, each through a proxy.
func TestConformanceThree(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: make check runs it")
	}
	cluster := servers.NewCluster(t, servers.Consul, 3, nil)
	h := harness(t, cluster.Members()[2])
	create := h.New
	h.New = func(ct conformance.T) *conformance.Store {
		s := create(ct)
		s.OpenSeveral = func(ctx context.Context) (driver.Backend, []*conformance.Wire, error) {
			return several(ctx, t, cluster)
		}
		return s
	}
	conformance.Test(t, h)
}

// TestDoors runs the cases about claims, commits and fences across two servers of a cluster.
func TestDoors(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("-short: make check runs it")
	}
	members := servers.NewCluster(t, servers.Consul, 3, nil).Members()
	other := &suiteStore{server: members[1]}
	conformance.TestDoors(t, harness(t, members[0]), func(ctx context.Context, namespace string) (driver.Backend, error) {
		return other.open(ctx, t, newNetwork(new(traffic)), namespace, Options{Create: true})
	})
}

func several(ctx context.Context, t testing.TB, cluster *servers.Cluster) (driver.Backend, []*conformance.Wire, error) {
	var c Config
	var wires []*conformance.Wire
	for _, addr := range cluster.Addrs() {
		proxy, err := faultproxy.New(addr, nil)
		if err != nil {
			return nil, nil, err
		}
		t.Cleanup(func() { proxy.Close() })
		c.Addresses = append(c.Addresses, proxy.Addr())
		wires = append(wires, &conformance.Wire{DropRequests: func() func() {
			if err := proxy.Set(faultproxy.BlackHole()); err != nil {
				t.Error(err)
			}
			return func() {
				if err := proxy.Set(faultproxy.Faults{}); err != nil {
					t.Error(err)
				}
			}
		}})
	}
	b, err := Open(ctx, c, fresh(), &Options{Create: true})
	if err != nil {
		return nil, nil, err
	}
	return b, wires, nil
}

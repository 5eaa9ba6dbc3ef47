package etcd

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/stats"

	"github.com/tenure-go/tenure/backends/kv"
	"github.com/tenure-go/tenure/conformance"
	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/kvkeys"
	"github.com/tenure-go/tenure/internal/proof/servers"
	"github.com/tenure-go/tenure/internal/proof/suite"
)

// TestConformance runs the suite as a user with a password and with permissions on the suite's keys
// only.
func TestConformance(t *testing.T) {
	server := servers.New(t, servers.Etcd, &servers.Options{Config: []string{"bcrypt-cost = 4"}})
	root, user := enableAuth(t, server, "readwrite", "suite/", clientv3.GetPrefixRangeEnd("suite/"))
	admin, h := newClient(t, root), harness(t, root, user, nil)
	create := h.New
	h.New = func(t conformance.T) *conformance.Store {
		s := create(t)
		grant := func(ctx context.Context, right int32) error {
			_, err := admin.RoleGrantPermission(ctx, "app", "suite/", clientv3.GetPrefixRangeEnd("suite/"), clientv3.PermissionType(right))
			return err
		}
		s.Deny = func(ctx context.Context) (func(context.Context) error, error) {
			return func(ctx context.Context) error { return grant(ctx, int32(clientv3.PermReadWrite)) }, grant(ctx, int32(clientv3.PermRead))
		}
		return s
	}
	conformance.Test(t, h)
}

// TestConformanceCluster runs the suite on three members.
func TestConformanceCluster(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: make check runs it")
	}
	cluster := servers.NewCluster(t, servers.Etcd, 3, nil)
	c := config(t, cluster.Members()...)
	h := harness(t, c, c, nil)
	create := h.New
	h.New = func(ct conformance.T) *conformance.Store {
		s := create(ct)
		s.OpenSeveral = several(t, c)
		return s
	}
	conformance.Test(t, h)
}

// TestDoors runs the cases about claims, commits and fences across two members of a cluster.
func TestDoors(t *testing.T) {
	t.Parallel()
	members := servers.NewCluster(t, servers.Etcd, 3, &servers.Options{NoSync: true}).Members()
	c, other := config(t, members[0]), config(t, members[1])
	conformance.TestDoors(t, harness(t, c, c, nil), func(ctx context.Context, namespace string) (driver.Backend, error) {
		return new(suiteStore).open(ctx, other, namespace, Options{Create: true}, nil)
	})
}

// several opens backends that reach each member through a proxy.
func several(t *testing.T, c clientv3.Config) func(context.Context) (driver.Backend, []*conformance.Wire, error) {
	return func(ctx context.Context) (driver.Backend, []*conformance.Wire, error) {
		through := c
		through.Endpoints = nil
		var wires []*conformance.Wire
		for _, addr := range c.Endpoints {
			proxied, wire := conformance.Proxy(suite.Wrap(t), addr)
			through.Endpoints = append(through.Endpoints, proxied)
			wires = append(wires, wire)
		}
		b, err := Open(ctx, through, fmt.Sprintf("several/%s", rand.Text()[:8]), &Options{Create: true})
		if err != nil {
			return nil, nil, err
		}
		return b, wires, nil
	}
}

// TestConformanceNetwork runs the cases about networks through a proxy that does not parse its
// traffic.
func TestConformanceNetwork(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: make check runs it")
	}
	server := pool.Get(t, servers.Etcd, nil)
	c := config(t, server)
	h := harness(t, c, c, func() (clientv3.Config, *conformance.Wire) {
		proxied, wire := conformance.Proxy(suite.Wrap(t), server.Addr())
		through := c
		through.Endpoints = []string{proxied}
		return through, wire
	})
	conformance.Test(t, h)
}

// TestConformanceRestart runs the cases in which the server is killed and restarted.
func TestConformanceRestart(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("-short: make check runs it")
	}
	server := servers.New(t, servers.Etcd, nil)
	h := harness(t, config(t, server), config(t, server), nil)
	h.Serial = true
	create := h.New
	h.New = func(t conformance.T) *conformance.Store {
		s := create(t)
		s.Restart = server.Restart
		return s
	}
	conformance.TestCases(t, h, "Acquire/TokensIncreaseAcrossStoreRestart", "Chaos/RestartStore")
}

// TestConformanceNarrow runs the case in which the server restarts with a lower limit for requests.
func TestConformanceNarrow(t *testing.T) {
	t.Parallel()
	server := servers.New(t, servers.Etcd, nil)
	h := harness(t, config(t, server), config(t, server), nil)
	create := h.New
	h.New = func(t conformance.T) *conformance.Store {
		s := create(t)
		s.Narrow = func(ctx context.Context) (func(context.Context) error, error) {
			return func(ctx context.Context) error { return server.Reconfigure(ctx) },
				server.Reconfigure(ctx, "max-txn-ops = 16")
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

// harness runs the suite with backends as user, and with direct access to the store as admin. Each
// case has a separate namespace. Without a network, the faults occur between the backend and its
// client.
func harness(
	t *testing.T, admin, user clientv3.Config, network func() (clientv3.Config, *conformance.Wire),
) conformance.Harness {
	client := newClient(t, admin)
	status, err := client.Status(t.Context(), admin.Endpoints[0])
	if err != nil {
		t.Fatal(err)
	}
	suite := "suite/" + rand.Text()[:8]
	var cases atomic.Int64
	return conformance.Harness{
		Name:    backendName,
		Version: "etcd " + status.Version,
		New: func(conformance.T) *conformance.Store {
			s := &suiteStore{client: client, config: user, namespace: fmt.Sprintf("%s/case%d", suite, cases.Add(1))}
			s.config.DialOptions = append(s.config.DialOptions, grpc.WithStatsHandler(&s.calls))
			return s.conformance(t, network)
		},
	}
}

type suiteStore struct {
	client    *clientv3.Client
	config    clientv3.Config
	namespace string
	calls     counter
}

func (s *suiteStore) open(
	ctx context.Context, c clientv3.Config, namespace string, o Options, wrap func(kv.Store) kv.Store,
) (driver.Backend, error) {
	opts, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	st, err := dial(ctx, c, opts)
	if err != nil {
		return nil, err
	}
	b, err := open(ctx, st, namespace, opts, wrap)
	if err != nil {
		return nil, err
	}
	return b, nil
}

func (s *suiteStore) conformance(
	t testing.TB, network func() (clientv3.Config, *conformance.Wire),
) *conformance.Store {
	keys, err := kvkeys.New(s.namespace)
	if err != nil {
		t.Fatal(err)
	}
	create := Options{Create: true}
	all := clientv3.WithPrefix()
	return &conformance.Store{
		Open: func(ctx context.Context) (driver.Backend, error) {
			return s.open(ctx, s.config, s.namespace, create, nil)
		},
		OpenExisting: func(ctx context.Context) (driver.Backend, error) {
			return s.open(ctx, s.config, s.namespace, Options{}, nil)
		},
		OpenNamespace: func(ctx context.Context, suffix string) (driver.Backend, error) {
			return s.open(ctx, s.config, s.namespace+suffix, create, nil)
		},
		OpenLying: func(ctx context.Context) (driver.Backend, error) {
			return s.open(ctx, s.config, s.namespace, create, func(st kv.Store) kv.Store { return lying{st} })
		},
		OpenFaulty: func(ctx context.Context) (driver.Backend, *conformance.Wire, error) {
			if network != nil {
				c, wire := network()
				b, err := s.open(ctx, c, s.namespace, create, nil)
				return b, wire, err
			}
			wrap, wire := conformance.KVFaults()
			b, err := s.open(ctx, s.config, s.namespace, create, wrap)
			return b, wire, err
		},
		Calls: s.calls.calls,
		Compact: func(ctx context.Context) error {
			resp, err := s.client.Get(ctx, keys.Identity())
			if err == nil {
				_, err = s.client.Compact(ctx, resp.Header.Revision)
			}
			return err
		},
		Wipe: func(ctx context.Context) error {
			_, err := s.client.Delete(ctx, s.namespace+"/", all)
			return err
		},
		Snapshot: func(ctx context.Context) (func(context.Context) error, error) {
			backup, err := s.client.Get(ctx, s.namespace+"/", all)
			return func(ctx context.Context) error {
				_, err := s.client.Delete(ctx, s.namespace+"/", all)
				for _, p := range backup.Kvs {
					if err == nil {
						_, err = s.client.Put(ctx, string(p.Key), string(p.Value))
					}
				}
				return err
			}, err
		},
		Tamper: func(ctx context.Context, what conformance.Tampering, name string) error {
			return s.tamper(ctx, keys, what, name)
		},
		RaiseFloor: func(ctx context.Context, above driver.Token) error {
			return RaiseFloor(ctx, s.client, s.namespace, above, nil)
		},
		Guards: []conformance.Guard{guardOf(s.client, "texts/"+s.namespace+"/")},
	}
}

// guardOf is Guard, with texts in keys below a prefix.
func guardOf(client *clientv3.Client, prefix string) conformance.Guard {
	return conformance.Guard{
		Name: "Guard",
		Begin: func(_ context.Context, b driver.Backend, fence driver.Fence) (func(context.Context, string) error, error) {
			guard := b.(*Backend).Guard(fence)
			return func(ctx context.Context, text string) error {
				resp, err := client.Txn(ctx).If(guard...).Then(clientv3.OpPut(prefix+text, "")).Commit()
				if err == nil && !resp.Succeeded {
					err = driver.ErrFenced
				}
				return err
			}, nil
		},
		Texts: func(ctx context.Context) ([]string, error) {
			resp, err := client.Get(ctx, prefix, clientv3.WithPrefix(), clientv3.WithKeysOnly())
			if err != nil {
				return nil, err
			}
			var texts []string
			for _, p := range resp.Kvs {
				texts = append(texts, strings.TrimPrefix(string(p.Key), prefix))
			}
			return texts, nil
		},
	}
}

func (s *suiteStore) tamper(ctx context.Context, keys kvkeys.Keys, what conformance.Tampering, name string) error {
	key, value, ok := conformance.KVDamage(string(keys), what, name, 1<<20)
	if ok {
		_, err := s.client.Put(ctx, key, value)
		return err
	}
	switch what {
	case conformance.RewriteShard:
		_, err := s.client.Put(ctx, key, "", clientv3.WithIgnoreValue())
		return err
	case conformance.RemoveShard, conformance.RemoveEntry:
		_, err := s.client.Delete(ctx, key)
		return err
	}
	return errors.ErrUnsupported
}

type lying struct{ kv.Store }

func (l lying) Apply(ctx context.Context, b *kv.Batch) (*kv.Outcome, error) {
	c := &kv.Batch{Heartbeat: b.Heartbeat, Txns: append([]kv.Txn(nil), b.Txns...)}
	for i := range c.Txns {
		c.Txns[i].If = nil
	}
	return l.Store.Apply(ctx, c)
}

// counter counts the calls of a client's connections.
type counter struct{ reads, writes, waits, others atomic.Int64 }

func (c *counter) calls() conformance.Calls {
	return conformance.Calls{Reads: c.reads.Load(), Writes: c.writes.Load(), Waits: c.waits.Load()}
}

func (c *counter) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context   { return ctx }
func (c *counter) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }
func (c *counter) HandleConn(context.Context, stats.ConnStats)                       {}

func (c *counter) HandleRPC(_ context.Context, s stats.RPCStats) {
	out, ok := s.(*stats.OutPayload)
	if !ok {
		return
	}
	switch r := out.Payload.(type) {
	case *etcdserverpb.RangeRequest:
		c.reads.Add(1)
	case *etcdserverpb.TxnRequest:
		if len(r.Success) > 0 && r.Success[0].GetRequestRange() != nil {
			c.reads.Add(1)
		} else {
			c.writes.Add(1)
		}
	case *etcdserverpb.WatchRequest:
		c.waits.Add(1)
	default:
		c.others.Add(1)
	}
}

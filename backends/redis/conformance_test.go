package redis

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/tenure-go/tenure/backends/kv"
	"github.com/tenure-go/tenure/conformance"
	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/proof/servers"
	"github.com/tenure-go/tenure/internal/proof/suite"
	"github.com/tenure-go/tenure/internal/seam"
)

// TestConformance runs the suite as a user with permissions on the suite's keys only.
func TestConformance(t *testing.T) {
	server := pool.Get(t, servers.Redis, nil)
	conformance.Test(t, harness(t, config(t, server), asUser(t, server, "suite/*"), Options{}, nil))
}

// TestConformanceNetwork runs the cases about networks through a proxy that does not
// parse its traffic.
func TestConformanceNetwork(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: make check runs it")
	}
	server := pool.Get(t, servers.Redis, nil)
	c := config(t, server)
	h := harness(t, c, c, Options{}, func() (*goredis.UniversalOptions, *conformance.Wire) {
		proxied, wire := conformance.Proxy(suite.Wrap(t), server.Addr())
		return &goredis.UniversalOptions{Addrs: []string{proxied}}, wire
	})
	conformance.TestCases(t, h, casesOf(func(c suite.Case) bool {
		return !slices.Contains(c.Needs, "Wire.Duplicate") && slices.ContainsFunc(c.Needs, func(need string) bool {
			return strings.HasPrefix(need, "Wire.")
		})
	})...)
}

// casesOf names the selected cases of the suite.
func casesOf(wanted func(suite.Case) bool) []string {
	var names []string
	for _, c := range (conformance.Harness{}).Internal(seam.Key{}).Cases() {
		if wanted(c) {
			names = append(names, c.Name)
		}
	}
	return names
}

// TestConformanceSentinel runs some areas on a server that Sentinels name. Each write waits for the
// server's replica.
func TestConformanceSentinel(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: make check runs it")
	}
	d := newSentinels(t)
	quick(t, d.config, d.config, d.options)
}

// TestConformanceCluster runs these areas on a cluster of three masters, as a user with permissions
// on the suite's keys only. For most namespaces, the first given address does not belong to their
// node.
func TestConformanceCluster(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: make check runs it")
	}
	cluster := servers.NewCluster(t, servers.Redis, 3, nil)
	c := &goredis.UniversalOptions{Addrs: cluster.Addrs()}
	user := *c
	for _, s := range cluster.Members() {
		user.Username, user.Password = "tenure", "secret"
		asUser(t, s, "suite/*")
	}
	quick(t, c, &user, Options{AllowLoss: true})
}

// TestDoors runs the cases about claims, commits and fences through clients that know the nodes of
// a cluster in different orders.
func TestDoors(t *testing.T) {
	t.Parallel()
	cluster := servers.NewCluster(t, servers.Redis, 3, nil)
	c := &goredis.UniversalOptions{Addrs: cluster.Addrs()}
	other := &goredis.UniversalOptions{Addrs: slices.Clone(c.Addrs)}
	slices.Reverse(other.Addrs)
	o := Options{AllowLoss: true}
	h := harness(t, c, c, o, nil)
	create := h.New
	h.New = func(t conformance.T) *conformance.Store {
		s := create(t)
		s.Wipe, s.Snapshot = nil, nil // they query only one node for keys
		return s
	}
	conformance.TestDoors(t, h, func(ctx context.Context, namespace string) (driver.Backend, error) {
		o := o
		o.Create = true
		return new(suiteStore).open(ctx, other, namespace, o, nil)
	})
}

// quick runs the areas that write, and those that read these writes.
func quick(t *testing.T, admin, user *goredis.UniversalOptions, o Options) {
	conformance.TestCases(t, harness(t, admin, user, o, nil), casesOf(func(c suite.Case) bool {
		area, _, _ := strings.Cut(c.Name, "/")
		return slices.Contains([]string{"Acquire", "Release", "Commit", "Log"}, area) &&
			!slices.Contains(c.Needs, "Restart") && !slices.Contains(c.Needs, "Narrow")
	})...)
}

// TestConformanceRestart runs the cases in which the server is killed and restarted.
func TestConformanceRestart(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("-short: make check runs it")
	}
	server := servers.New(t, servers.Redis, nil)
	c := config(t, server)
	h := harness(t, c, c, Options{}, nil)
	h.Serial = true
	create := h.New
	h.New = func(t conformance.T) *conformance.Store {
		s := create(t)
		s.Restart = server.Restart
		return s
	}
	conformance.TestCases(t, h, "Acquire/TokensIncreaseAcrossStoreRestart", "Chaos/RestartStore")
}

// TestConformanceIsolated runs the cases in which the replica takes over from a master that is cut
// off. Each case has its own servers.
func TestConformanceIsolated(t *testing.T) {
	t.Parallel()
	servers.Short(t, servers.Redis)
	o := Options{Replicas: 1, ReplicaTimeout: 10 * time.Second, Create: true} // the cases bound their calls
	conformance.TestCases(t, conformance.Harness{Name: backendName, New: func(ct conformance.T) *conformance.Store {
		r := newReplicated(t)
		at := proxied(t, r.master)
		return &conformance.Store{
			Open: func(ctx context.Context) (driver.Backend, error) {
				c := *config(t, r.master)
				c.Addrs = []string{*at.at.Load()}
				return (&suiteStore{}).open(ctx, &c, "isolated", o, nil)
			},
			Isolate: func(context.Context) (func(context.Context) error, error) {
				r.cut(t)
				return func(context.Context) error {
					r.promote(t)
					at.lead(t, r.replica)
					return nil
				}, nil
			},
		}
	}}, casesOf(func(c suite.Case) bool { return slices.Contains(c.Needs, "Isolate") })...)
}

// harness runs the suite with options o, with backends as user, and with direct access to the store
// as admin. Each case has a separate namespace. Without a network, the faults occur between the
// backend and its client.
func harness(
	t *testing.T, admin, user *goredis.UniversalOptions, o Options,
	network func() (*goredis.UniversalOptions, *conformance.Wire),
) conformance.Harness {
	client := newAdmin(t, admin)
	info, err := client.InfoMap(t.Context(), "server").Result()
	if err != nil {
		t.Fatal(err)
	}
	suite := "suite/" + rand.Text()[:8]
	var cases atomic.Int64
	return conformance.Harness{
		Name:    backendName,
		Version: "Redis " + info["Server"]["redis_version"],
		Options: "appendfsync always",
		New: func(conformance.T) *conformance.Store {
			s := &suiteStore{client: client, config: *user, admin: admin, namespace: fmt.Sprintf("%s/case%d", suite, cases.Add(1))}
			if err := s.count(); err != nil {
				t.Fatal(err)
			}
			return s.conformance(t, o, network)
		},
	}
}

type suiteStore struct {
	client    goredis.UniversalClient
	admin     *goredis.UniversalOptions
	config    goredis.UniversalOptions
	namespace string
	calls     counter
}

func (s *suiteStore) open(
	ctx context.Context, c *goredis.UniversalOptions, namespace string, o Options, wrap func(kv.Store) kv.Store,
) (driver.Backend, error) {
	b, err := open(ctx, c, namespace, &o, wrap)
	if err != nil {
		return nil, err
	}
	return b, nil
}

func (s *suiteStore) conformance(
	t testing.TB, o Options, network func() (*goredis.UniversalOptions, *conformance.Wire),
) *conformance.Store {
	create := o
	create.Create = true
	return &conformance.Store{
		Open: func(ctx context.Context) (driver.Backend, error) {
			return s.open(ctx, &s.config, s.namespace, create, nil)
		},
		OpenExisting: func(ctx context.Context) (driver.Backend, error) {
			return s.open(ctx, &s.config, s.namespace, o, nil)
		},
		OpenNamespace: func(ctx context.Context, suffix string) (driver.Backend, error) {
			return s.open(ctx, &s.config, s.namespace+suffix, create, nil)
		},
		OpenLying: func(ctx context.Context) (driver.Backend, error) {
			return s.open(ctx, &s.config, s.namespace, create, func(st kv.Store) kv.Store { return lying{st} })
		},
		OpenFaulty: func(ctx context.Context) (driver.Backend, *conformance.Wire, error) {
			if network != nil {
				c, wire := network()
				b, err := s.open(ctx, c, s.namespace, create, nil)
				return b, wire, err
			}
			wrap, wire := conformance.KVFaults()
			b, err := s.open(ctx, &s.config, s.namespace, create, wrap)
			return b, wire, err
		},
		Calls: s.calls.calls,
		Compact: func(ctx context.Context) error {
			var failed error
			for _, feed := range []string{"state", "logs", "beats"} {
				failed = errors.Join(failed, s.client.XTrimMaxLen(ctx, "{"+s.namespace+"}/"+feed, 0).Err())
			}
			return failed
		},
		Wipe:     s.wipe,
		Snapshot: s.snapshot,
		Tamper:   s.tamper,
		RaiseFloor: func(ctx context.Context, above driver.Token) error {
			return RaiseFloor(ctx, s.admin, s.namespace, above, &o)
		},
		Guards: []conformance.Guard{guardOf(s.client, "{"+s.namespace+"}-texts")},
	}
}

// guardOf is GuardScript, with texts in the set key.
func guardOf(client goredis.UniversalClient, key string) conformance.Guard {
	return conformance.Guard{
		Name: "GuardScript",
		Begin: func(_ context.Context, b driver.Backend, fence driver.Fence) (func(context.Context, string) error, error) {
			script, err := GuardScript("return redis.call('SADD', KEYS[1], ARGV[1])")
			if err != nil {
				return nil, err
			}
			keys, args := b.(*Backend).Guard(fence, []string{key}, "")
			return func(ctx context.Context, text string) error {
				args[0] = text
				err := script.Run(ctx, client, keys, args...).Err()
				if Fenced(err) {
					err = fmt.Errorf("%w: %w", driver.ErrFenced, err)
				}
				return err
			}, nil
		},
		Texts: func(ctx context.Context) ([]string, error) { return client.SMembers(ctx, key).Result() },
	}
}

func (s *suiteStore) keys(ctx context.Context) ([]string, error) {
	return s.client.Keys(ctx, "{"+s.namespace+"}/*").Result()
}

func (s *suiteStore) wipe(ctx context.Context) error {
	keys, err := s.keys(ctx)
	if err != nil {
		return err
	}
	return s.client.Del(ctx, keys...).Err()
}

func (s *suiteStore) snapshot(ctx context.Context) (func(context.Context) error, error) {
	keys, err := s.keys(ctx)
	if err != nil {
		return nil, err
	}
	dumps := make(map[string]string)
	for _, key := range keys {
		if dumps[key], err = s.client.Dump(ctx, key).Result(); err != nil {
			return nil, err
		}
	}
	return func(ctx context.Context) error {
		if err := s.wipe(ctx); err != nil {
			return err
		}
		for key, dump := range dumps {
			if err := s.client.Restore(ctx, key, 0, dump).Err(); err != nil {
				return err
			}
		}
		return nil
	}, nil
}

func (s *suiteStore) tamper(ctx context.Context, what conformance.Tampering, name string) error {
	st, err := newStore(s.admin, s.namespace, &Options{AllowLoss: true, Insecure: true})
	if err != nil {
		return err
	}
	defer st.Close()
	if err := st.attach(ctx); err != nil {
		return err
	}
	key, value, ok := conformance.KVDamage(s.namespace, what, name, 1<<20)
	op := kv.Op{Key: key, Value: []byte(value)}
	if !ok {
		op = kv.Op{Key: key, Delete: what == conformance.RemoveShard || what == conformance.RemoveEntry}
		if !op.Delete && what != conformance.RewriteShard {
			return errors.ErrUnsupported
		}
		page, err := st.Get(ctx, op.Key)
		if err != nil {
			return err
		}
		op.Value = page.Pairs[0].Value
	}
	_, err = st.Apply(ctx, &kv.Batch{Txns: []kv.Txn{{Ops: []kv.Op{op}}}})
	return err
}

type lying struct{ kv.Store }

func (l lying) Apply(ctx context.Context, b *kv.Batch) (*kv.Outcome, error) {
	c := &kv.Batch{Heartbeat: b.Heartbeat, Txns: append([]kv.Txn(nil), b.Txns...)}
	for i := range c.Txns {
		c.Txns[i].If = nil
	}
	return l.Store.Apply(ctx, c)
}

// counter counts the commands that connections send.
type counter struct {
	scripts              *scripts
	reads, writes, waits atomic.Int64
}

func (c *counter) calls() conformance.Calls {
	return conformance.Calls{Reads: c.reads.Load(), Writes: c.writes.Load(), Waits: c.waits.Load()}
}

func (s *suiteStore) count() (err error) {
	if s.calls.scripts, err = readScripts(); err != nil {
		return err
	}
	s.config.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		var d net.Dialer
		conn, err := d.DialContext(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return &counted{conn, &s.calls}, nil
	}
	return nil
}

// counted is a connection that counts its commands. Each command is written separately.
type counted struct {
	net.Conn
	c *counter
}

func (c *counted) Write(b []byte) (int, error) {
	n := func(text string) int64 { return int64(bytes.Count(b, []byte(text))) }
	c.c.reads.Add(n(c.c.scripts.get.Hash()) + n(c.c.scripts.scan.Hash()))
	c.c.writes.Add(n(c.c.scripts.apply.Hash()))
	c.c.waits.Add(n("xread"))
	return c.Conn.Write(b)
}

package quorum

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/tenure-go/tenure/backends/etcd"
	"github.com/tenure-go/tenure/conformance"
	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/kvkeys"
	"github.com/tenure-go/tenure/internal/proof/suite"
)

// TestConformance runs the suite on three members in three processes, one of which is the test's.
// Every second Backend of a case is a client that is no member. With -short, only the cases about
// claims and fences run; the suite of package etcd covers the rest of the backend.
func TestConformance(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	for _, name := range []string{"a", "b"} {
		s := c.setting(name)
		s.Create, s.Idle = true, true
		c.run(s)
	}
	own := c.setting("c").Config
	own.Create, own.Logger = true, slog.New(slog.DiscardHandler)
	h := harness(c, started(t, own))
	if testing.Short() {
		conformance.TestDoors(t, h, nil)
		return
	}
	conformance.Test(t, h)
}

func harness(c *cluster, m *Member) conformance.Harness {
	var cases atomic.Int64
	return conformance.Harness{Name: "quorum", New: func(conformance.T) *conformance.Store {
		return store(c, m, fmt.Sprintf("suite/case%d", cases.Add(1)))
	}}
}

func store(c *cluster, m *Member, namespace string) *conformance.Store {
	client := c.client()
	create := &etcd.Options{Create: true}
	outside := func(ctx context.Context, endpoints []string, namespace string) (driver.Backend, error) {
		b, err := etcd.Open(ctx, clientv3.Config{Endpoints: endpoints}, namespace, create)
		if err != nil {
			return nil, err
		}
		return b, nil
	}
	inside := func(ctx context.Context, namespace string, o *etcd.Options) (driver.Backend, error) {
		b, err := m.Open(ctx, namespace, o)
		if err != nil {
			return nil, err
		}
		return b, nil
	}
	return &conformance.Store{
		Open:         func(ctx context.Context) (driver.Backend, error) { return inside(ctx, namespace, create) },
		OpenExisting: func(ctx context.Context) (driver.Backend, error) { return inside(ctx, namespace, nil) },
		OpenNamespace: func(ctx context.Context, suffix string) (driver.Backend, error) {
			return inside(ctx, namespace+suffix, create)
		},
		OpenOther: func(ctx context.Context) (driver.Backend, error) {
			return outside(ctx, endpoints(c.of.Members), namespace)
		},
		OpenFaulty: func(ctx context.Context) (driver.Backend, *conformance.Wire, error) {
			through, wire := conformance.Proxy(suite.Wrap(c.T), c.of.Members[0].Client)
			b, err := outside(ctx, []string{"http://" + through}, namespace)
			return b, wire, err
		},
		OpenSeveral: func(ctx context.Context) (driver.Backend, []*conformance.Wire, error) {
			var all []string
			var wires []*conformance.Wire
			for _, x := range c.of.Members {
				through, wire := conformance.Proxy(suite.Wrap(c.T), x.Client)
				all, wires = append(all, "http://"+through), append(wires, wire)
			}
			b, err := outside(ctx, all, namespace)
			return b, wires, err
		},
		Compact: func(ctx context.Context) error {
			resp, err := client.Get(ctx, "x")
			if err == nil {
				_, err = client.Compact(ctx, resp.Header.Revision)
			}
			return err
		},
		Wipe: func(ctx context.Context) error {
			_, err := client.Delete(ctx, namespace+"/", clientv3.WithPrefix())
			return err
		},
		RaiseFloor: func(ctx context.Context, above driver.Token) error {
			return etcd.RaiseFloor(ctx, client, namespace, above, nil)
		},
		Tamper: func(ctx context.Context, what conformance.Tampering, name string) error {
			keys, err := kvkeys.New(namespace)
			if err != nil {
				return err
			}
			key, value, ok := conformance.KVDamage(string(keys), what, name, 1<<20)
			switch {
			case ok:
				_, err = client.Put(ctx, key, value)
			case what == conformance.RewriteShard:
				_, err = client.Put(ctx, key, "", clientv3.WithIgnoreValue())
			case what == conformance.RemoveShard || what == conformance.RemoveEntry:
				_, err = client.Delete(ctx, key)
			default:
				err = errors.ErrUnsupported
			}
			return err
		},
		Snapshot: func(ctx context.Context) (func(context.Context) error, error) {
			backup, err := client.Get(ctx, namespace+"/", clientv3.WithPrefix())
			return func(ctx context.Context) error {
				_, err := client.Delete(ctx, namespace+"/", clientv3.WithPrefix())
				for _, p := range backup.Kvs {
					if err == nil {
						_, err = client.Put(ctx, string(p.Key), string(p.Value))
					}
				}
				return err
			}, err
		},
		Guards: []conformance.Guard{guard(client, "texts/"+namespace+"/")},
	}
}

// guard is the backend's Guard, with texts in keys below a prefix.
func guard(client *clientv3.Client, prefix string) conformance.Guard {
	return conformance.Guard{
		Name: "Guard",
		Begin: func(_ context.Context, b driver.Backend, fence driver.Fence) (func(context.Context, string) error, error) {
			guard := b.(interface {
				Guard(driver.Fence) []clientv3.Cmp
			}).Guard(fence)
			return func(ctx context.Context, text string) error {
				resp, err := client.Txn(ctx).If(guard...).Then(clientv3.OpPut(prefix+text, "")).Commit()
				if err == nil && !resp.Succeeded {
					err = driver.ErrFenced
				}
				return err
			}, nil
		},
		Texts: func(ctx context.Context) (texts []string, err error) {
			resp, err := client.Get(ctx, prefix, clientv3.WithPrefix(), clientv3.WithKeysOnly())
			if err != nil {
				return nil, err
			}
			for _, p := range resp.Kvs {
				texts = append(texts, strings.TrimPrefix(string(p.Key), prefix))
			}
			return texts, nil
		},
	}
}

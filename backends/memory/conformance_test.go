package memory_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tenure-go/tenure/backends/kv"
	"github.com/tenure-go/tenure/backends/memory"
	"github.com/tenure-go/tenure/conformance"
	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/changelog"
	"github.com/tenure-go/tenure/internal/proof/kvfault"
	"github.com/tenure-go/tenure/internal/proof/watchless"
)

func TestConformance(t *testing.T) {
	t.Parallel()
	conformance.Test(t, conformance.Harness{Name: "memory", New: newConformanceStore(memory.Open)})
}

// TestConformanceChangeLogs runs the suite on the same store without its watch, as backends on
// Consul and ZooKeeper see their stores. It is not parallel, because cases that measure the process
// must not measure two suites.
func TestConformanceChangeLogs(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: .ci/run runs it")
	}
	conformance.Test(t, conformance.Harness{Name: "changelog", New: newConformanceStore(openChangeLogs)})
}

func openChangeLogs(ctx context.Context, s *memory.Store, namespace string, o *memory.Options) (*kv.Backend, error) {
	if o == nil {
		o = &memory.Options{}
	}
	c := s.Client()
	if o.Wrap != nil {
		c = o.Wrap(c)
	}
	c = changelog.New(watchless.New(c), namespace, changelog.Options{})
	b, err := kv.Open(ctx, c, kv.Options{
		Backend: "changelog", Namespace: namespace, Create: !o.NoCreate, Pipeline: 4,
		Limits: driver.Limits{BatchItems: 60, WriteOps: 256, WriteBytes: 1 << 20, MinTTL: 10 * time.Millisecond},
	})
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return b, nil
}

type opener func(ctx context.Context, s *memory.Store, namespace string, o *memory.Options) (*kv.Backend, error)

func newConformanceStore(o opener) func(conformance.T) *conformance.Store {
	return func(conformance.T) *conformance.Store { return o.conformanceStore() }
}

func (o opener) conformanceStore() *conformance.Store {
	const namespace = "conformance/ns"
	store := memory.New()
	var link kvfault.Link
	open := func(ctx context.Context, namespace string, with *memory.Options) (driver.Backend, error) {
		b, err := o(ctx, store, namespace, with)
		if err != nil {
			return nil, err
		}
		return b, nil
	}
	return &conformance.Store{
		Open: func(ctx context.Context) (driver.Backend, error) {
			return open(ctx, namespace, &memory.Options{Wrap: link.Wrap})
		},
		OpenExisting: func(ctx context.Context) (driver.Backend, error) {
			return open(ctx, namespace, &memory.Options{NoCreate: true})
		},
		OpenNamespace: func(ctx context.Context, suffix string) (driver.Backend, error) {
			return open(ctx, namespace+suffix, nil)
		},
		OpenLying: func(ctx context.Context) (driver.Backend, error) {
			lying := memory.New()
			lying.SetLying(true)
			return o(ctx, lying, namespace, nil)
		},
		OpenFaulty: func(ctx context.Context) (driver.Backend, *conformance.Wire, error) {
			wrap, wire := conformance.KVFaults()
			b, err := open(ctx, namespace, &memory.Options{Wrap: wrap})
			return b, wire, err
		},
		Calls: func() conformance.Calls {
			c := store.Counts()
			return conformance.Calls{Reads: int64(c.Reads), Writes: int64(c.Writes + c.Heartbeats),
				Waits: int64(c.Watches)}
		},
		Compact: func(context.Context) error {
			store.Compact()
			return nil
		},
		Deny: func(context.Context) (func(context.Context) error, error) {
			link.SetError(kvfault.Write, fmt.Errorf("tenure: %w: %w", driver.ErrRetry, driver.ErrDenied))
			return func(context.Context) error {
				link.Heal()
				return nil
			}, nil
		},
		Tamper: func(_ context.Context, what conformance.Tampering, name string) error {
			return tamper(store, namespace, what, name)
		},
		Wipe: func(context.Context) error {
			store.Wipe()
			return nil
		},
		Snapshot: func(context.Context) (func(context.Context) error, error) {
			backup := store.Snapshot()
			return func(context.Context) error {
				store.Restore(backup)
				return nil
			}, nil
		},
		Restart: func(context.Context) error {
			store.Restore(store.Snapshot())
			return nil
		},
		RaiseFloor: func(ctx context.Context, above driver.Token) error {
			return kv.RaiseFloor(ctx, store.Client(), namespace, above)
		},
		Guards: []conformance.Guard{guardOf(store.Client())},
	}
}

// guardOf is kv.Guard, with texts in records beside the namespace's.
func guardOf(client kv.Store) conformance.Guard {
	const prefix = "texts/"
	return conformance.Guard{
		Name: "kv.Guard",
		Begin: func(ctx context.Context, b driver.Backend, fence driver.Fence) (func(context.Context, string) error, error) {
			guard, err := kv.Guard(ctx, b.(*kv.Backend), fence)
			if err != nil {
				return nil, err
			}
			return func(ctx context.Context, text string) error {
				out, err := client.Apply(ctx, &kv.Batch{Txns: []kv.Txn{{If: guard, Ops: []kv.Op{{Key: prefix + text}}}}})
				if err == nil && !out.Results[0].OK {
					err = driver.ErrFenced
				}
				return err
			}, nil
		},
		Texts: func(ctx context.Context) ([]string, error) {
			page, err := client.Range(ctx, kv.Range{Prefix: prefix})
			if err != nil {
				return nil, err
			}
			var texts []string
			for _, p := range page.Pairs {
				texts = append(texts, strings.TrimPrefix(p.Key, prefix))
			}
			return texts, nil
		},
	}
}

func tamper(store *memory.Store, namespace string, what conformance.Tampering, name string) error {
	key, value, ok := conformance.KVDamage(namespace, what, name, 1<<20)
	if ok {
		store.Tamper(key, []byte(value))
		return nil
	}
	switch what {
	case conformance.RewriteShard:
		value, ok := store.Record(key)
		if !ok {
			return fmt.Errorf("there is no record %q", key)
		}
		store.Tamper(key, value)
	case conformance.RemoveShard, conformance.RemoveEntry:
		store.Tamper(key, nil)
	default:
		return errors.ErrUnsupported
	}
	return nil
}

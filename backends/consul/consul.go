package consul

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/tenure-go/tenure/backends/kv"
	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/changelog"
	"github.com/tenure-go/tenure/internal/kvkeys"
)

const backendName = "consul"

// Backend is a namespace in Consul's key-value store. It implements driver.Backend and is safe for
// concurrent use.
type Backend struct {
	*kv.Backend
	store *store
}

var _ driver.Backend = (*Backend)(nil)

// OpenClient opens a namespace through the caller's client, which the Backend does not close. The
// client's HTTP client must not set a timeout or retry requests. The client determines the number
// of its connections. With the caller's client, a Backend decodes even a large list of records as a
// whole, whereas a Backend from Open drops long values as they arrive. The context limits only
// OpenClient itself, and o may be nil. An error explains what to change.
func OpenClient(ctx context.Context, client *api.Client, namespace string, o *Options) (*Backend, error) {
	if client == nil {
		return nil, fmt.Errorf("tenure: cannot open namespace %q in Consul: %w: OpenClient needs a client", namespace, driver.ErrInvalid)
	}
	return open(ctx, []*slots{shared(client, func() {})}, namespace, o)
}

func open(ctx context.Context, all []*slots, namespace string, o *Options) (*Backend, error) {
	opts, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	keys, err := kvkeys.New(namespace)
	if err != nil {
		return nil, err
	}
	s := newStore(all, keys, opts)
	s.reach(ctx)
	store := logged(s, namespace)
	shared, err := kv.Open(ctx, store, kv.Options{
		Backend: backendName, Namespace: namespace, Create: opts.Create, Limits: limits(s), Pipeline: requestSlots, Fit: s.fit,
	})
	if err != nil {
		return nil, errors.Join(err, store.Close())
	}
	return &Backend{Backend: shared, store: s}, nil
}

func logged(s *store, namespace string) kv.Store {
	return changelog.New(s, namespace, changelog.Options{Parallel: requestSlots, ReadKeys: s.ops})
}

// Besides its items, a transaction contains the guard's two conditions, the piggybacked
// transaction, and the witness.
const (
	reserved      = 2 + 2*changelog.MaxPiggybackOps + 1
	reservedBytes = reserved*(operationOverhead+2<<10) + 2*changelog.MaxPiggybackBytes
)

func limits(s *store) driver.Limits {
	const commit = 3 // other operations: the shard's record, the head, the entries
	return driver.Limits{
		BatchItems: s.ops - reserved,
		WriteOps:   s.ops - reserved - commit,
		WriteBytes: s.bytes / 2, // values are sent in base64, with their keys
		MinTTL:     500 * time.Millisecond,
	}
}

func (s *store) fit(txns []kv.Txn) int {
	r := &request{ops: make([]operation, 0, s.ops)}
	for i := range txns {
		r.txn(&txns[i], i)
		if len(r.ops) > s.ops-reserved || r.bytes > s.bytes-reservedBytes {
			return i
		}
	}
	return len(txns)
}

// GuardOps returns operations to put at the front of the caller's transaction on the same Consul
// cluster. With these operations, the transaction takes effect only if the fence is current (rule
// F1):
//
//	ops, err := b.GuardOps(ctx, fence)
//	ok, res, _, err := client.Txn().Txn(append(ops, put), nil)
//
// If an error's OpIndex refers to one of these operations, the fence is no longer current. The
// transaction must write something, because Consul treats a transaction without a write as a read,
// which may be stale. If the fence is not current, GuardOps returns *driver.FencedError.
func (b *Backend) GuardOps(ctx context.Context, f driver.Fence) (api.TxnOps, error) {
	conditions, err := kv.Guard(ctx, b.Backend, f)
	if err != nil {
		return nil, err
	}
	var ops api.TxnOps
	for _, c := range conditions {
		ops = append(ops, &api.TxnOp{KV: &api.KVTxnOp{Verb: api.KVCheckIndex, Key: c.Key, Index: uint64(c.Rev)}})
	}
	return ops, nil
}

// RaiseFloor ensures that all future tokens of a namespace exceed the given token. Call RaiseFloor
// after restoring a snapshot into another cluster. Pass the highest token known from logs, marks or
// metrics. Backends that are already open then return ErrStoreChanged and must be reopened.
func RaiseFloor(ctx context.Context, client *api.Client, namespace string, above driver.Token, o *Options) error {
	opts, err := o.withDefaults()
	if err != nil {
		return err
	}
	keys, err := kvkeys.New(namespace)
	if err != nil {
		return err
	}
	store := logged(newStore([]*slots{shared(client, func() {})}, keys, opts), namespace)
	return errors.Join(kv.RaiseFloor(ctx, store, namespace, above), store.Close())
}

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

// Name is the backend's name in Info and of its Opener.
const Name = "consul"

// Backend is a namespace in Consul's key-value store. It implements
// driver.Backend; safe for concurrent use.
type Backend struct {
	*kv.Backend
	store *store
}

var _ driver.Backend = (*Backend)(nil)

// Open opens a namespace through the caller's client, which stays the caller's: closing the Backend
// leaves it open. Its HTTP client must not set a time-out, and must not repeat requests; at most
// six of the Backend's are under way at once while heartbeats are answered, and how many
// connections it keeps is its own matter. The context bounds the opening only. nil options work. An
// error says what to change.
func Open(ctx context.Context, client *api.Client, namespace string, o *Options) (*Backend, error) {
	if client == nil {
		return nil, fmt.Errorf("tenure: cannot open namespace %q in Consul: %w: Open needs a client", namespace, driver.ErrInvalid)
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
		Backend: Name, Namespace: namespace, Create: opts.Create, Limits: limits(s), Pipeline: requestSlots, Fit: s.fit,
	})
	if err != nil {
		return nil, errors.Join(err, store.Close())
	}
	return &Backend{Backend: shared, store: s}, nil
}

func logged(s *store, namespace string) kv.Store {
	return changelog.New(s, namespace, changelog.Options{Parallel: requestSlots, ReadKeys: s.ops})
}

// The operations of a transaction beside its items: two conditions of the guard,
// the piggybacked transaction, and the witness.
const (
	reserved      = 2 + 2*changelog.MaxPiggybackOps + 1
	reservedBytes = reserved*(operationOverhead+2<<10) + 2*changelog.MaxPiggybackBytes
)

func limits(s *store) driver.Limits {
	const commit = 3 // operations beside the write's: the shard's record, the head, the entries
	return driver.Limits{
		BatchItems: s.ops - reserved,
		WriteOps:   s.ops - reserved - commit,
		WriteBytes: s.bytes / 2, // values travel in base64, and with their keys
		MinTTL:     500 * time.Millisecond,
	}
}

// fit is how many transactions one request carries.
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

// GuardOps returns operations for the front of a transaction of the caller's own on the
// same Consul, which then takes effect only if the fence is the shard's current grant
// (rule F1):
//
//	ops, err := b.GuardOps(ctx, fence)
//	ok, res, _, err := client.Txn().Txn(append(ops, put), nil)
//
// An error of one of them, by its OpIndex, means a dead fence and no other refusal. The
// transaction must write something: Consul serves one that only reads or checks like a
// read, which may be stale. A fence that is not current is *driver.FencedError.
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

// RaiseFloor makes every token granted from now on in a namespace greater than
// above: for an operator, after a snapshot was restored into another cluster, with
// the highest token known from logs, marks or metrics. Backends that are open
// answer ErrStoreChanged from then on, and have to be opened again.
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

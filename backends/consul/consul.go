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

// backendName is the backend's name in Info and of its Opener.
const backendName = "consul"

// Backend is a namespace in Consul's key-value store. It implements driver.Backend. Safe for
// concurrent use.
type Backend struct {
	*kv.Backend
	store *store
}

var _ driver.Backend = (*Backend)(nil)

// OpenClient opens a namespace through the caller's client, which a Close of the Backend leaves
// open. The client's HTTP client must not set a time-out or repeat requests. While heartbeats
// are answered, the Backend has at most six requests in flight. The client decides how many
// connections it keeps. The client decodes a whole list of records, whatever its size. A
// Backend from Open drops long values as they arrive. The context limits the opening only. o
// may be nil. An error says what to change.
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

// Operations of a transaction besides its items: two conditions of the guard, the piggybacked
// transaction, and the witness.
const (
	reserved      = 2 + 2*changelog.MaxPiggybackOps + 1
	reservedBytes = reserved*(operationOverhead+2<<10) + 2*changelog.MaxPiggybackBytes
)

func limits(s *store) driver.Limits {
	const commit = 3 // operations besides the write's: the shard's record, the head, the entries
	return driver.Limits{
		BatchItems: s.ops - reserved,
		WriteOps:   s.ops - reserved - commit,
		WriteBytes: s.bytes / 2, // values are sent in base64, with their keys
		MinTTL:     500 * time.Millisecond,
	}
}

// fit returns how many transactions one request holds.
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

// GuardOps returns operations to put at the front of a caller's transaction on the same Consul.
// With them, the transaction takes effect only if the fence is the shard's current grant (rule
// F1):
//
//	ops, err := b.GuardOps(ctx, fence)
//	ok, res, _, err := client.Txn().Txn(append(ops, put), nil)
//
// If the OpIndex of an error is one of these operations, the fence is dead. The transaction must
// write something, because Consul serves a transaction that only reads or checks as a read, which
// may be stale. If the fence is not current, GuardOps returns *driver.FencedError.
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

// RaiseFloor makes every token that a namespace grants from now on greater than above. An
// operator calls it after restoring a snapshot into another cluster. Pass the highest token
// known from logs, marks or metrics. Open backends then answer ErrStoreChanged and must be
// opened again.
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

package etcd

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/tenure-go/tenure/backends/kv"
	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/kvkeys"
)

// backendName is the backend's name in Info and of its Opener.
const backendName = "etcd"

// pipeline is the number of transactions of one call in flight. It is enough to hide a round
// trip, and small enough that other calls get in between.
const pipeline = 4

// Backend is a namespace in etcd. It implements driver.Backend and is safe for concurrent use.
type Backend struct {
	*kv.Backend
	client *clientv3.Client
}

var _ driver.Backend = (*Backend)(nil)

// OpenClient opens a namespace through the caller's client. The caller closes the client after the
// Backend. ctx limits the opening only. o may be nil. An error says in one line what to change.
//
// The Backend makes connections to the client's endpoints, with the client's configuration. So
// wrappers of client.KV or client.Watcher, such as the prefix of clientv3/namespace, do not
// apply.
func OpenClient(ctx context.Context, client *clientv3.Client, namespace string, o *Options) (*Backend, error) {
	if client == nil {
		return nil, opening(namespace, fmt.Errorf("%w: OpenClient needs a client", driver.ErrInvalid))
	}
	opts, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	st, err := connect(ctx, client, opts)
	if err != nil {
		return nil, opening(namespace, err)
	}
	return open(ctx, st, namespace, opts, nil)
}

// open opens a namespace of a store, and closes the store if that fails. wrap lets tests put
// something between the two.
func open(
	ctx context.Context, st *store, namespace string, o *Options, wrap func(kv.Store) kv.Store,
) (_ *Backend, err error) {
	defer func() {
		if err != nil {
			err = errors.Join(err, st.Close())
		}
	}()
	keys, err := kvkeys.New(namespace)
	if err != nil {
		return nil, err
	}
	if err := st.discover(ctx, keys.Identity(), o.MaxTxnOps); err != nil {
		return nil, opening(namespace, err)
	}
	var over kv.Store = st
	if wrap != nil {
		over = wrap(st)
	}
	b, err := kv.Open(ctx, over, kv.Options{
		Backend: backendName, Namespace: namespace, Create: o.Create, Limits: st.limits(), Pipeline: pipeline,
		Incarnation: strconv.FormatUint(st.clusterID.Load(), 16), Now: time.Now(),
	})
	if err != nil {
		return nil, opening(namespace, err)
	}
	return &Backend{Backend: b, client: st.client}, nil
}

// limits returns the limits of a server. The width of a transaction that holds n others is n plus
// the width of the widest, and may not exceed the server's limit. The widest of many is a
// transfer's, 3. A commit has two conditions besides its operations'. In units, twice as many are
// sent in one request, and the server needs no longer than for half of them one by one.
func (s *store) limits() driver.Limits {
	return driver.Limits{
		BatchItems: 2 * (s.maxOps - 3), WriteOps: s.maxOps - 3, WriteBytes: s.maxBytes / 3 * 2,
		MinTTL: 500 * time.Millisecond,
	}
}

// Guard returns the conditions for a transaction of the application on the same etcd. With
// them, the transaction takes effect if and only if the lease is the shard's current grant at
// that point of the store's order (rule F1):
//
//	resp, err := client.Txn(ctx).If(b.Guard(lease.Fence())...).Then(clientv3.OpPut("paid/42", "yes")).Commit()
//
// A refused transaction (resp.Succeeded is false) means that the lease is no longer the current
// grant. After an error of Commit, the outcome may be unknown, so read before sending the
// transaction again.
func (b *Backend) Guard(fence driver.Fence) []clientv3.Cmp {
	conditions, held, _, ok := kv.Granted(b.Backend, fence)
	if !ok { // never true
		return []clientv3.Cmp{clientv3.Compare(clientv3.ModRevision("/"), "<", 0)}
	}
	var all []clientv3.Cmp
	for _, c := range conditions {
		all = append(all, clientv3.Compare(clientv3.ModRevision(c.Key), "=", int64(c.Rev)))
	}
	key := conditions[len(conditions)-1].Key
	// The revision fixes the session, so this refuses a fence of another session.
	return append(all, clientv3.Compare(clientv3.Value(key), ">", string(held)),
		clientv3.Compare(clientv3.Value(key), "<", clientv3.GetPrefixRangeEnd(string(held))))
}

// RaiseFloor makes every token that a namespace grants from now on greater than above. After a
// restore from a snapshot, an operator calls it before starting any process again. Pass the
// highest token known from logs, marks or metrics.
func RaiseFloor(ctx context.Context, client *clientv3.Client, namespace string, above driver.Token, o *Options) error {
	opts, err := o.withDefaults()
	if err != nil {
		return err
	}
	st, err := connect(ctx, client, opts)
	if err != nil {
		return opening(namespace, err)
	}
	return errors.Join(kv.RaiseFloor(ctx, st, namespace, above), st.Close())
}

func opening(namespace string, err error) error {
	if denied(err) {
		return fmt.Errorf("tenure: etcd refuses this user namespace %q: grant it the role of docs/backends/etcd.md: %w",
			namespace, err)
	}
	return fmt.Errorf("tenure: cannot open namespace %q in etcd: %w", namespace, err)
}

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

const backendName = "etcd"

// pipeline is the maximum number of transactions that one call has in flight. Four transactions
// hide a round trip without holding up other calls.
const pipeline = 4

// Backend is a namespace in etcd. It implements driver.Backend and is safe for concurrent use.
type Backend struct {
	*kv.Backend
	client *clientv3.Client
}

var _ driver.Backend = (*Backend)(nil)

// OpenClient opens a namespace through the caller's client. The caller closes the client after the
// Backend. The context limits only OpenClient itself, and o may be nil. An error explains in one
// line what to change.
//
// Because the Backend opens its own connections with the client's endpoints and configuration,
// wrappers around client.KV or client.Watcher, such as clientv3/namespace, have no effect.
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

// open opens a namespace in a store, and closes the store on failure. Tests use wrap to insert a
// layer between the namespace and the store.
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

// The width of a transaction that contains n others is n plus the largest width among them, and
// must not exceed the server's limit. The widest frequent transaction is a transfer, whose width is
// 3. A commit has two conditions besides those of its operations. Units double the number of
// transactions that fit in one request, without increasing the time that the server needs.
func (s *store) limits() driver.Limits {
	return driver.Limits{
		BatchItems: 2 * (s.maxOps - 3), WriteOps: s.maxOps - 3, WriteBytes: s.maxBytes / 3 * 2,
		MinTTL: 500 * time.Millisecond,
	}
}

// Guard returns conditions for the application's own transaction on the same etcd cluster. With
// these conditions, the transaction takes effect only if the lease is current at that time (rule
// F1):
//
//	resp, err := client.Txn(ctx).If(b.Guard(lease.Fence())...).Then(clientv3.OpPut("paid/42", "yes")).Commit()
//
// If the transaction is refused (resp.Succeeded is false), the lease is no longer current. If
// Commit returns an error, the outcome may be unknown, so read the records before you send the
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
	// The revision determines the session, so this comparison refuses a fence of another session.
	return append(all, clientv3.Compare(clientv3.Value(key), ">", string(held)),
		clientv3.Compare(clientv3.Value(key), "<", clientv3.GetPrefixRangeEnd(string(held))))
}

// RaiseFloor ensures that all future tokens of a namespace exceed the given token. After a restore
// from a snapshot, call RaiseFloor before you start any process. Pass the highest token known from
// logs, marks or metrics.
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

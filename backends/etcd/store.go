package etcd

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/tenure-go/tenure/backends/kv"
	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/route"
)

// pageSize is the maximum number of records in one answer to Range. Even in a large namespace, an
// answer of a few hundred kilobytes does not stall the member.
const pageSize = 5000

// If kv.Range.Largest limits the length of values, an answer has at most pageBytes or a single
// record. The constant cautious limits the records of the first answer.
const (
	pageBytes = 1 << 20
	cautious  = 64
)

var _ kv.Store = (*store)(nil)

// store implements kv.Store on connections to the cluster's members.
type store struct {
	client   *clientv3.Client
	opts     []grpc.CallOption
	maxOps   int
	maxBytes int

	life    context.Context // ends with Close
	end     context.CancelFunc
	release func() error // closes the client if the store owns it

	clusterID atomic.Uint64 // from the first answer (I2)

	mu      sync.Mutex
	cluster *cluster
}

// connect creates a store on a client's endpoints. At least one endpoint must answer.
func connect(ctx context.Context, client *clientv3.Client, o *Options) (*store, error) {
	s, err := newStore(client, o)
	if err != nil {
		return nil, err
	}
	first, err := s.cluster.checkVersions(ctx)
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	s.cluster.routes = route.New(s.life, len(s.cluster.members), first)
	return s, nil
}

func newStore(client *clientv3.Client, o *Options) (*store, error) {
	if client.ActiveConnection() == nil {
		return nil, fmt.Errorf("%w: the client has no connection, as that of an embedded server: make one with "+
			"clientv3.New", driver.ErrInvalid)
	}
	s := &store{
		client: client,
		opts: []grpc.CallOption{
			grpc.MaxCallSendMsgSize(o.MaxRequestBytes + 512<<10), // the server allows this many more bytes
			grpc.MaxCallRecvMsgSize(math.MaxInt32),
		},
		maxOps: max(o.MaxTxnOps, minTxnOps), maxBytes: o.MaxRequestBytes, release: func() error { return nil },
	}
	s.life, s.end = context.WithCancel(context.Background())
	var err error
	if s.cluster, err = dialCluster(s.life, client); err != nil {
		s.end()
		return nil, err
	}
	return s, nil
}

// Close ends blocked calls.
func (s *store) Close() error {
	s.end()
	s.mu.Lock()
	defer s.mu.Unlock()
	return errors.Join(s.cluster.close(), s.release())
}

func errClosed() error { return errors.New("tenure: the backend was closed meanwhile") }

// maxRefusals is the number of times that a call is sent while its token is refused. A member that
// lags behind does not know a new token yet, but a call must not spend all its time on refusals.
const maxRefusals = 4

// send sends one transaction once (rule E2). The client's interceptor may repeat a call that had no
// effect, for example because its token had expired. To stop the interceptor from also repeating a
// call that the server or its proxy ended with a context error, send first ends the call's context.
func (s *store) send(
	ctx context.Context, heartbeat bool, r *etcdserverpb.TxnRequest,
) (*etcdserverpb.TxnResponse, error) {
	way := (*route.Routes).Call
	if heartbeat {
		way = (*route.Routes).Beat
	}
	t, m, err := s.begin(ctx, way)
	if err != nil {
		return nil, s.failed(ctx, err, false, heartbeat)
	}
	client := m.kv
	if heartbeat {
		client = m.beats
	}
	call, cancel := context.WithCancel(t.Context)
	defer cancel()
	var at peer.Peer
	var last atomic.Pointer[error] // of the last attempt
	var refusals atomic.Int32
	resp, err := client.Txn(call, r, append(slices.Clip(s.opts), grpc.Peer(&at), grpc.OnFinish(func(err error) {
		last.Store(&err)
		c := status.Code(err)
		if c == codes.DeadlineExceeded || c == codes.Canceled || denied(err) && refusals.Add(1) == maxRefusals {
			cancel()
		}
	}))...)
	if l := last.Load(); err != nil && l != nil && denied(*l) {
		err = *l // rather than the timeout of renewing the token
	}
	if err = finish(ctx, t, err); err == nil {
		return resp, s.sameCluster(resp.Header)
	}
	return nil, s.failed(ctx, err, at.Addr != nil, heartbeat)
}

// sameCluster refuses an answer from a different cluster. A restored cluster begins with the same
// records, so conditions may hold there before the cluster's id is recorded. This process uses no
// grants from such a cluster, and a later Open raises the base of tokens above these grants (I2).
func (s *store) sameCluster(h *etcdserverpb.ResponseHeader) error {
	id := h.GetClusterId()
	if s.clusterID.CompareAndSwap(0, id) || s.clusterID.Load() == id {
		return nil
	}
	return fmt.Errorf("tenure: %w: cluster %x of etcd answers, and %x was opened: it was restored or replaced; start "+
		"this process again",
		driver.ErrStoreChanged, id, s.clusterID.Load())
}

// Get reads keys in as few transactions as the server's limit allows.
func (s *store) Get(ctx context.Context, keys ...string) (*kv.Page, error) {
	page := &kv.Page{Pairs: make([]kv.Pair, 0, len(keys))}
	for part := range slices.Chunk(keys, s.maxOps) {
		r := &etcdserverpb.TxnRequest{Success: reads(part)}
		resp, err := s.send(ctx, false, r)
		if err != nil {
			return nil, err
		}
		if len(resp.Responses) != len(part) {
			return nil, short("reads", len(resp.Responses), len(part))
		}
		if rev := kv.Rev(resp.Header.GetRevision()); page.Rev == 0 || rev < page.Rev {
			page.Rev = rev
		}
		page.Pairs = appendPairs(page.Pairs, part, resp.Responses)
	}
	return page, nil
}

// Range reads all pages at the revision of the first page. If that revision is compacted, Range
// begins again.
func (s *store) Range(ctx context.Context, q kv.Range) (*kv.Page, error) {
	for {
		page, err := s.scan(ctx, q)
		if err == nil || !errors.Is(rpctypes.Error(err), rpctypes.ErrCompacted) {
			return page, err
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}
}

func (s *store) scan(ctx context.Context, q kv.Range) (*kv.Page, error) {
	t, m, err := s.begin(ctx, (*route.Routes).Call)
	if err != nil {
		return nil, err
	}
	page, err := m.scan(t.Context, q, s)
	if err = finish(ctx, t, err); err != nil {
		s.nudge(err)
		return nil, err
	}
	return page, nil
}

func (m *member) scan(ctx context.Context, q kv.Range, s *store) (*kv.Page, error) {
	page := &kv.Page{}
	from, end := []byte(max(q.Prefix, q.From)), []byte(clientv3.GetPrefixRangeEnd(q.Prefix))
	size := pageSize
	if q.Largest > 0 && q.Limit > 0 {
		size = cautious
	}
	for {
		limit := size
		if q.Limit > 0 {
			limit = min(limit, q.Limit-len(page.Pairs))
		}
		opts := s.opts
		if q.Largest > 0 && limit > 1 {
			opts = append(slices.Clip(opts), grpc.MaxCallRecvMsgSize(pageBytes))
		}
		resp, err := m.kv.Range(ctx, &etcdserverpb.RangeRequest{
			Key: from, RangeEnd: end, Limit: int64(limit), Revision: int64(page.Rev), KeysOnly: q.KeysOnly,
		}, opts...)
		if status.Code(err) == codes.ResourceExhausted && q.Largest > 0 && limit > 1 { // refused because of its length, and not read
			size = max(1, limit/4)
			continue
		}
		if err == nil {
			err = s.sameCluster(resp.Header)
		}
		if err != nil {
			return nil, err
		}
		if page.Rev == 0 {
			page.Rev = kv.Rev(resp.Header.GetRevision())
		}
		for _, p := range resp.Kvs {
			pair := kv.Pair{Key: string(p.Key), Value: p.Value, Rev: kv.Rev(p.ModRevision)}
			pair.Cut(q.Largest)
			page.Pairs = append(page.Pairs, pair)
		}
		size = min(2*size, pageSize)
		if !resp.More || len(resp.Kvs) == 0 || q.Limit > 0 && len(page.Pairs) >= q.Limit {
			return page, nil
		}
		from = append(resp.Kvs[len(resp.Kvs)-1].Key, 0)
	}
}

func short(what string, got, want int) error {
	return fmt.Errorf("tenure: etcd answered %d of %d %s", got, want, what)
}

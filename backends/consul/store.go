package consul

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/consul/api"

	"github.com/tenure-go/tenure/backends/kv"
	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/boundjson"
	"github.com/tenure-go/tenure/internal/changelog"
	"github.com/tenure-go/tenure/internal/goexit"
	"github.com/tenure-go/tenure/internal/kvkeys"
	"github.com/tenure-go/tenure/internal/route"
)

// store implements changelog.Store for a namespace in Consul's key-value store.
type store struct {
	addresses []*slots
	routes    *route.Routes                         // routes among the addresses
	token     func(context.Context) (string, error) // nil: the client's own token
	ops       int                                   // operations per transaction
	bytes     int                                   // bytes of a transaction's request
	ping      string                                // the key that pings read

	life context.Context // ends with Close
	end  context.CancelFunc

	// The highest received index is a lower bound for the indexes of later consistent reads.
	known   atomic.Uint64
	witness witness
}

var _ changelog.Store = (*store)(nil)

func newStore(all []*slots, keys kvkeys.Keys, o *Options) *store {
	life, end := context.WithCancel(context.Background())
	return &store{
		addresses: all, routes: route.New(life, len(all), 0), token: o.Token, ops: o.MaxTxnOps, bytes: o.MaxTxnBytes,
		ping: keys.Item(driver.PingShard, "0"),
		life: life, end: end, witness: witness{keys: keys},
	}
}

// Close ends blocked calls. The caller's client stays open.
func (s *store) Close() error {
	s.end()
	for _, l := range s.addresses {
		l.drop()
	}
	return nil
}

// reach selects the first of several addresses that answers. If no address answers, the next
// request reports the failure.
func (s *store) reach(ctx context.Context) {
	if len(s.addresses) == 1 {
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	answers := make(chan int, len(s.addresses))
	for i, l := range s.addresses {
		go func() {
			if _, err := l.all[0].client.Status().LeaderWithQueryOptions(new(api.QueryOptions).WithContext(ctx)); err != nil {
				i = -1
			}
			answers <- i
		}()
	}
	first := -1
	for range s.addresses {
		if i := <-answers; i >= 0 && first < 0 {
			first = i
			cancel()
		}
	}
	cancel()
	s.routes = route.New(s.life, len(s.addresses), max(first, 0))
}

// call represents a request that is ready to be sent.
type call struct {
	ctx    context.Context // the trip's
	client *api.Client
	token  string
	done   func()

	s       *store
	caller  context.Context
	outcome route.Outcome
}

func (c *call) query() *api.QueryOptions {
	return (&api.QueryOptions{RequireConsistent: true, Token: c.token}).WithContext(c.ctx)
}

// begin chooses an address and waits for a slot. An error means that nothing was sent.
func (s *store) begin(ctx context.Context, k kind) (c *call, err error) {
	c = &call{s: s, caller: ctx}
	if s.token != nil {
		if err = goexit.Call(func() (err error) { c.token, err = s.token(ctx); return err }); err != nil {
			return nil, fmt.Errorf("the ACL token: %w", err)
		}
	}
	var t *route.Trip
	switch k {
	case heartbeats:
		t = s.routes.Beat(ctx)
	case requests, pings:
		t = s.routes.Call(ctx)
	default:
		t = s.routes.Watch(ctx)
	}
	c.ctx = t.Context
	slots := s.addresses[t.Server].kinds[k]
	l, err := slots.take(t.Context)
	if err != nil {
		err = c.heard(err)
		t.Done(c.outcome)
		return nil, err
	}
	c.client = l.client
	c.done = func() {
		ended := t.Context.Err() != nil
		t.Done(c.outcome)
		// The dial may still be pending, the address may no longer be in use, or Close may have
		// dropped all connections before this one was open.
		if ended || s.life.Err() != nil || s.routes.Current() != t.Server {
			l.end()
		}
		slots.give(l)
	}
	return c, nil
}

// heard records a request's outcome for its address, and returns the caller's error, which shows
// whether the context or Close ended the request.
func (c *call) heard(err error) error {
	var refused api.StatusError
	switch {
	case err == nil:
		c.outcome = route.Answered
	case c.s.life.Err() != nil:
		return errClosed
	case c.caller.Err() != nil:
		if errors.Is(c.caller.Err(), context.DeadlineExceeded) {
			c.outcome = route.Failed
		}
		switch {
		case driver.NotApplied(err): // net/http returns the context's cause
			return driver.Ended(c.caller)
		case !errors.Is(err, c.caller.Err()):
			return fmt.Errorf("%w: %w", driver.Ended(c.caller), err)
		}
	case c.ctx.Err() != nil:
		return context.Cause(c.ctx) // because the Backend left the address
	case errors.As(err, &refused) && refused.Code < http.StatusInternalServerError:
		c.outcome = route.Answered
	default:
		c.outcome = route.Failed
	}
	return err
}

// write sends a transaction that changes something, and never repeats it. A nil error means that
// Consul either applied the transaction or refused it for the reasons in the reply.
func (s *store) write(ctx context.Context, r *request, k kind) (*reply, error) {
	if r.bytes > s.bytes || len(r.ops) > s.ops {
		return nil, fmt.Errorf("tenure: %w: a transaction of %d operations and about %d bytes: consul takes %d and %d",
			driver.ErrTooLarge, len(r.ops), r.bytes, s.ops, s.bytes)
	}
	c, err := s.begin(ctx, k)
	if err != nil {
		return nil, notSent(err)
	}
	defer c.done()
	a := new(reply)
	_, err = c.client.Raw().Write("/v1/txn", r.ops, a, (&api.WriteOptions{Token: c.token}).WithContext(c.ctx))
	var status api.StatusError
	err = c.heard(err)
	if errors.As(err, &status) && status.Code == http.StatusConflict {
		if a, err = decodeRefusal([]byte(status.Body), s.ops); err == nil && len(a.Errors) > 0 {
			return a, nil
		}
		return nil, fmt.Errorf("tenure: %w: consul refused a transaction without saying why", driver.ErrRetry)
	}
	if err != nil {
		return nil, writeError(err)
	}
	return a, nil
}

// maxRefusal limits the decoded length of a refusal, in bytes.
const maxRefusal = 1 << 20

func decodeRefusal(body []byte, ops int) (*reply, error) {
	a := new(reply)
	return a, boundjson.Unmarshal(body, maxRefusal, 64*ops, a)
}

// Get reads keys. See kv.Store.
func (s *store) Get(ctx context.Context, keys ...string) (*kv.Page, error) {
	k := requests
	if len(keys) == 1 && keys[0] == s.ping {
		k = pings
	}
	return s.get(ctx, k, keys)
}

// get reads keys in transactions, each at one index. Although every decision compares the records
// again, get uses consistent mode, because an old leader could return records that were replaced
// long ago.
func (s *store) get(ctx context.Context, k kind, keys []string) (*kv.Page, error) {
	page := &kv.Page{Pairs: make([]kv.Pair, 0, len(keys))}
	for lo := 0; lo < len(keys); lo += s.ops {
		rev, err := s.read(ctx, k, keys[lo:min(lo+s.ops, len(keys))], page)
		if err != nil {
			return nil, err
		}
		if lo == 0 {
			page.Rev = rev
		}
	}
	return page, nil
}

func (s *store) read(ctx context.Context, k kind, keys []string, page *kv.Page) (kv.Rev, error) {
	known, witness := s.known.Load(), s.witness.now()
	c, err := s.begin(ctx, k)
	if err != nil {
		return 0, readError(err)
	}
	defer c.done()
	ops := make(api.TxnOps, len(keys))
	for i, key := range keys {
		ops[i] = &api.TxnOp{KV: &api.KVTxnOp{Verb: verbGetOrEmpty, Key: key}}
	}
	ok, a, _, err := c.client.Txn().Txn(ops, c.query())
	if err = c.heard(err); err != nil {
		return 0, readError(err)
	}
	if !ok {
		if len(a.Errors) > 0 && a.Errors[0] != nil {
			return 0, readError(errors.New(a.Errors[0].What))
		}
		return 0, readError(errors.New("a read was refused"))
	}
	if len(a.Results) != len(keys) {
		return 0, readError(fmt.Errorf("it answered %d of %d keys: %s", len(a.Results), len(keys), adviceACL))
	}
	rev := known
	for i, key := range keys {
		if a.Results[i] == nil || a.Results[i].KV == nil || a.Results[i].KV.Key != key {
			return 0, readError(fmt.Errorf("it answered without the record %q: %s", key, adviceACL))
		}
		e := a.Results[i].KV
		if err := possible(e.ModifyIndex); err != nil {
			return 0, readError(err)
		}
		rev = max(rev, e.ModifyIndex)
		p := (&entry{Key: key, Value: e.Value, ModifyIndex: e.ModifyIndex}).pair()
		s.witness.check(witness, p)
		page.Pairs = append(page.Pairs, p)
	}
	s.learn(rev)
	return kv.Rev(rev), nil
}

func possible(index uint64) error {
	if index > math.MaxInt64 {
		return fmt.Errorf("it answered with the index %d, which is above any: its address leads to something else "+
			"than consul", index)
	}
	return nil
}

func (s *store) learn(index uint64) {
	for {
		old := s.known.Load()
		if index <= old || s.known.CompareAndSwap(old, index) {
			return
		}
	}
}

// witness is the permanent record that this process saw last, with its index. Tokens are derived
// from the log's index, which continues to grow after a snapshot is restored. Only records reveal
// the restore. If a record is older than before, the store returned to an earlier state (rule I1).
type witness struct {
	keys kvkeys.Keys

	mu   sync.Mutex
	pair kv.Pair // Key and Rev
	back bool    // permanently
}

func (w *witness) now() kv.Pair {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.pair
}

// check compares a record with the version known at the time of the request, and keeps the newest
// record.
func (w *witness) check(before kv.Pair, p kv.Pair) {
	shard, ok := strings.CutPrefix(p.Key, w.keys.Shards())
	if !ok && !strings.HasPrefix(p.Key, w.keys.Heads()) || driver.IsLock(driver.ShardID(shard)) { // R2
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if p.Key == before.Key && p.Rev < before.Rev {
		w.back = true
	}
	if p.Rev > w.pair.Rev {
		w.pair = kv.Pair{Key: p.Key, Rev: p.Rev}
	}
}

// rev returns 1 if the store returned to an earlier state, and otherwise 0, for an unknown
// revision.
func (w *witness) rev() kv.Rev {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.back {
		return 1
	}
	return 0
}

package etcd

import (
	"context"
	"fmt"
	"slices"

	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/tenure-go/tenure/backends/kv"
	"github.com/tenure-go/tenure/core/driver"
)

// Apply sends the batch as one transaction, or as several one after another where
// the server would not take one.
func (s *store) Apply(ctx context.Context, b *kv.Batch) (*kv.Outcome, error) {
	lane := s.kv
	if b.Heartbeat {
		lane = s.beats
	}
	out := &kv.Outcome{Results: make([]kv.Result, 0, len(b.Txns))}
	for len(out.Results) < len(b.Txns) {
		part := b.Txns[len(out.Results):]
		n, err := s.fit(b.Guard, part)
		first := len(out.Results) == 0
		if err == nil {
			var resp *etcdserverpb.TxnResponse
			if resp, err = s.send(ctx, lane, request(b.Guard, part[:n])); err == nil && resp.Succeeded {
				err = outcome(out, part[:n], resp)
			} else if err == nil && first {
				return refused(b.Guard, resp)
			} else if err == nil {
				err = fmt.Errorf("tenure: %w: the guard moved within the batch", driver.ErrRetry)
			}
		}
		if err == nil {
			continue
		}
		if first {
			return nil, err
		}
		for range part { // what came before counts
			out.Results = append(out.Results, kv.Result{Err: err})
		}
	}
	return out, nil
}

// fit is how many of the transactions one request may hold. The server counts the
// nested ones and the width of the widest of them.
func (s *store) fit(guard []kv.Compare, txns []kv.Txn) (int, error) {
	bytes, widest := 0, 0
	for _, c := range guard {
		bytes += 2 * (len(c.Key) + overhead) // compared, and read if that fails
	}
	for i := range txns {
		t := &txns[i]
		w := max(len(t.If), len(t.Ops)+len(t.Then), len(t.Else))
		n := size(t)
		if max(i+1, len(guard))+max(widest, w) > s.maxOps || bytes+n > s.maxBytes {
			if i == 0 {
				return 0, fmt.Errorf("tenure: %w: a transaction of %d operations and %d bytes: etcd takes %d and %d here; split it",
					driver.ErrTooLarge, w, n, s.maxOps-1, s.maxBytes)
			}
			return i, nil
		}
		bytes += n
		widest = max(widest, w)
	}
	return len(txns), nil
}

// overhead is more than what the encoding adds to a key or a value.
const overhead = 48

// size is a bound on the length of a transaction in a request.
func size(t *kv.Txn) int {
	n := overhead
	for _, c := range t.If {
		n += len(c.Key) + overhead
	}
	for _, op := range t.Ops {
		n += len(op.Key) + len(op.Value) + overhead
	}
	for _, key := range t.Then {
		n += len(key) + overhead
	}
	for _, key := range t.Else {
		n += len(key) + overhead
	}
	return n
}

// request is one transaction that holds the others: they run if the guard holds,
// each if its own conditions do. etcd evaluates all conditions before it writes.
func request(guard []kv.Compare, txns []kv.Txn) *etcdserverpb.TxnRequest {
	r := &etcdserverpb.TxnRequest{Compare: compares(guard), Success: make([]*etcdserverpb.RequestOp, len(txns))}
	for _, c := range guard {
		r.Failure = append(r.Failure, read(c.Key))
	}
	for i := range txns {
		r.Success[i] = &etcdserverpb.RequestOp{Request: &etcdserverpb.RequestOp_RequestTxn{RequestTxn: nested(&txns[i])}}
	}
	return r
}

func nested(t *kv.Txn) *etcdserverpb.TxnRequest {
	r := &etcdserverpb.TxnRequest{
		Compare: compares(t.If),
		Success: make([]*etcdserverpb.RequestOp, 0, len(t.Ops)+len(t.Then)),
		Failure: reads(t.Else),
	}
	for i, op := range t.Ops {
		prev := t.Prev && i == 0
		if op.Delete {
			r.Success = append(r.Success, &etcdserverpb.RequestOp{Request: &etcdserverpb.RequestOp_RequestDeleteRange{
				RequestDeleteRange: &etcdserverpb.DeleteRangeRequest{Key: []byte(op.Key), PrevKv: prev},
			}})
			continue
		}
		r.Success = append(r.Success, &etcdserverpb.RequestOp{Request: &etcdserverpb.RequestOp_RequestPut{
			RequestPut: &etcdserverpb.PutRequest{Key: []byte(op.Key), Value: op.Value, PrevKv: prev},
		}})
	}
	r.Success = append(r.Success, reads(t.Then)...)
	return r
}

// compares uses the revision of the last change; etcd's own version of a key
// begins again with every creation.
func compares(conds []kv.Compare) []*etcdserverpb.Compare {
	cs := make([]*etcdserverpb.Compare, len(conds))
	for i, c := range conds {
		cs[i] = &etcdserverpb.Compare{Key: []byte(c.Key), Target: etcdserverpb.Compare_MOD, Result: etcdserverpb.Compare_EQUAL,
			TargetUnion: &etcdserverpb.Compare_ModRevision{ModRevision: int64(c.Rev)}}
		if c.Rev == kv.Exists {
			cs[i].Result = etcdserverpb.Compare_GREATER
			cs[i].TargetUnion = &etcdserverpb.Compare_ModRevision{ModRevision: int64(kv.Absent)}
		}
	}
	return cs
}

func read(key string) *etcdserverpb.RequestOp {
	return &etcdserverpb.RequestOp{Request: &etcdserverpb.RequestOp_RequestRange{
		RequestRange: &etcdserverpb.RangeRequest{Key: []byte(key)},
	}}
}

func reads(keys []string) []*etcdserverpb.RequestOp {
	ops := make([]*etcdserverpb.RequestOp, len(keys))
	for i, key := range keys {
		ops[i] = read(key)
	}
	return ops
}

// refused is the answer to a batch whose guard did not hold.
func refused(guard []kv.Compare, resp *etcdserverpb.TxnResponse) (*kv.Outcome, error) {
	if len(resp.Responses) != len(guard) {
		return nil, short("guards", len(resp.Responses), len(guard))
	}
	keys := make([]string, len(guard))
	for i, c := range guard {
		keys[i] = c.Key
	}
	return &kv.Outcome{Rev: kv.Rev(resp.Header.GetRevision()), Refused: true, Guard: appendPairs(nil, keys, resp.Responses)}, nil
}

// outcome appends the results of one request. An answer of another shape than the
// request's leaves its outcome unknown.
func outcome(out *kv.Outcome, txns []kv.Txn, resp *etcdserverpb.TxnResponse) error {
	if len(resp.Responses) != len(txns) {
		return short("transactions", len(resp.Responses), len(txns))
	}
	rev := kv.Rev(resp.Header.GetRevision())
	results := make([]kv.Result, len(txns))
	for i := range txns {
		t, got := &txns[i], resp.Responses[i].GetResponseTxn()
		ops, keys := 0, t.Else
		if got.GetSucceeded() {
			ops, keys = len(t.Ops), t.Then
		}
		if len(got.GetResponses()) != ops+len(keys) {
			return short("operations", len(got.GetResponses()), ops+len(keys))
		}
		results[i].Reads = appendPairs(nil, keys, got.Responses[ops:])
		if !got.Succeeded {
			continue
		}
		results[i].OK, results[i].Rev = true, rev
		if t.Prev {
			results[i].Prev = previous(got.Responses[0])
		}
	}
	out.Rev = max(out.Rev, rev)
	out.Results = append(out.Results, results...)
	return nil
}

func previous(r *etcdserverpb.ResponseOp) kv.Rev {
	if put := r.GetResponsePut(); put != nil {
		return kv.Rev(put.GetPrevKv().GetModRevision())
	}
	for _, p := range r.GetResponseDeleteRange().GetPrevKvs() {
		return kv.Rev(p.ModRevision)
	}
	return 0
}

func appendPairs(pairs []kv.Pair, keys []string, from []*etcdserverpb.ResponseOp) []kv.Pair {
	pairs = slices.Grow(pairs, len(keys))
	for i, key := range keys {
		p := kv.Pair{Key: key}
		for _, found := range from[i].GetResponseRange().GetKvs() {
			p.Value, p.Rev = found.Value, kv.Rev(found.ModRevision)
		}
		pairs = append(pairs, p)
	}
	return pairs
}

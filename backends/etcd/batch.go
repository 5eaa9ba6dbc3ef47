package etcd

import (
	"context"
	"fmt"
	"slices"

	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/tenure-go/tenure/backends/kv"
	"github.com/tenure-go/tenure/core/driver"
)

// unit is a sequence of transactions that etcd applies together or not at all. The field at is the
// first transaction's index in the batch.
type unit struct {
	at   int
	txns []kv.Txn
}

// Apply sends the batch as one transaction, or as a sequence of several if one would be too large
// for the server. To reduce the server's work, Apply combines the batch's transactions into units,
// so that fewer are nested. Because no part of a refused unit was applied, its transactions are
// sent again one by one.
func (s *store) Apply(ctx context.Context, b *kv.Batch) (*kv.Outcome, error) {
	out := &kv.Outcome{Results: make([]kv.Result, len(b.Txns))}
	queue := s.units(b.Txns)
	applied := func() bool { return slices.ContainsFunc(out.Results, func(r kv.Result) bool { return r.OK }) }
	for len(queue) > 0 {
		n, err := s.fit(b.Guard, queue)
		if err != nil { // a single unit is too large (rule A4)
			fail(out, queue[:1], err)
			queue = queue[1:]
			continue
		}
		var again []unit
		resp, err := s.send(ctx, b.Heartbeat, request(b.Guard, queue[:n]))
		if err == nil && resp.Succeeded {
			again, err = outcome(out, queue[:n], resp)
		} else if err == nil && !applied() {
			return refused(b.Guard, resp)
		} else if err == nil {
			err = fmt.Errorf("tenure: %w: the guard moved within the batch", driver.ErrRetry)
		}
		if err == nil {
			queue = append(queue[n:], again...)
			continue
		}
		if !applied() {
			return nil, err
		}
		fail(out, queue, err) // earlier results count
		return out, nil
	}
	return out, nil
}

func fail(out *kv.Outcome, units []unit, err error) {
	for _, u := range units {
		for i := range u.txns {
			out.Results[u.at+i] = kv.Result{Err: err}
		}
	}
}

// A unit of several transactions uses at most half the width and half the bytes that the server
// accepts. The other half of the width is reserved for the number of units.
func (s *store) units(txns []kv.Txn) []unit {
	var units []unit
	for lo := 0; lo < len(txns); {
		hi, ops, conds, bytes := lo, 0, 0, 0
		for ; hi < len(txns); hi++ {
			t := &txns[hi]
			ops += len(t.Ops) + len(t.Then)
			conds += len(t.If)
			bytes += size(t)
			if hi > lo && (max(ops, conds) > s.maxOps/2 || bytes > s.maxBytes/2) {
				break
			}
		}
		units = append(units, unit{lo, txns[lo:hi]})
		lo = hi
	}
	return units
}

// width returns a unit's number of operations, as counted by the server.
func (u unit) width() int {
	ops, conds := 0, 0
	for i := range u.txns {
		ops += len(u.txns[i].Ops) + len(u.txns[i].Then)
		conds += len(u.txns[i].If)
	}
	if len(u.txns) == 1 {
		return max(ops, conds, len(u.txns[0].Else))
	}
	return max(ops, conds)
}

// fit returns the number of units that fit in one request. The server adds the number of nested
// transactions to the width of the widest transaction.
func (s *store) fit(guard []kv.Compare, units []unit) (int, error) {
	bytes, widest := 0, 0
	for _, c := range guard {
		bytes += 2 * (len(c.Key) + overhead) // compared, and read if the compare fails
	}
	for i, u := range units {
		w, n := u.width(), 0
		for j := range u.txns {
			n += size(&u.txns[j])
		}
		if max(i+1, len(guard))+max(widest, w) > s.maxOps || bytes+n > s.maxBytes {
			if i > 0 {
				return i, nil
			}
			return 0, fmt.Errorf("tenure: %w: a transaction of %d operations and %d bytes: etcd takes %d and %d here; "+
				"split it",
				driver.ErrTooLarge, w, n, s.maxOps-1, s.maxBytes)
		}
		bytes += n
		widest = max(widest, w)
	}
	return len(units), nil
}

// overhead is the maximum number of bytes that the encoding adds to a key or a value.
const overhead = 48

// size returns an upper bound on a transaction's length in a request.
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

// request returns one transaction that contains the units. If the guard holds, etcd runs each unit
// whose conditions also hold. All conditions are evaluated before any write.
func request(guard []kv.Compare, units []unit) *etcdserverpb.TxnRequest {
	r := &etcdserverpb.TxnRequest{Compare: compares(nil, guard), Success: make([]*etcdserverpb.RequestOp, len(units))}
	for _, c := range guard {
		r.Failure = append(r.Failure, read(c.Key))
	}
	for i, u := range units {
		r.Success[i] = &etcdserverpb.RequestOp{Request: &etcdserverpb.RequestOp_RequestTxn{RequestTxn: nested(u.txns)}}
	}
	return r
}

// nested returns one unit's operation. If the unit has several transactions, the reads that explain
// a refusal are omitted, because the transactions are sent again.
func nested(txns []kv.Txn) *etcdserverpb.TxnRequest {
	r := &etcdserverpb.TxnRequest{
		Compare: make([]*etcdserverpb.Compare, 0, len(txns)),
		Success: make([]*etcdserverpb.RequestOp, 0, len(txns)),
	}
	if len(txns) == 1 {
		r.Failure = reads(txns[0].Else)
	}
	count := 0
	for n := range txns {
		count += len(txns[n].Ops)
	}
	// To save allocations, the parts of each operation are allocated together.
	ops := make([]struct {
		op  etcdserverpb.RequestOp
		is  etcdserverpb.RequestOp_RequestPut
		put etcdserverpb.PutRequest
	}, count)
	for n := range txns {
		t := &txns[n]
		r.Compare = compares(r.Compare, t.If)
		for i, op := range t.Ops {
			prev := t.Prev && i == 0
			p := &ops[0]
			ops = ops[1:]
			r.Success = append(r.Success, &p.op)
			if op.Delete {
				p.op.Request = &etcdserverpb.RequestOp_RequestDeleteRange{
					RequestDeleteRange: &etcdserverpb.DeleteRangeRequest{Key: []byte(op.Key), PrevKv: prev},
				}
				continue
			}
			p.put.Key, p.put.Value, p.put.PrevKv = []byte(op.Key), op.Value, prev
			p.is.RequestPut = &p.put
			p.op.Request = &p.is
		}
		r.Success = append(r.Success, reads(t.Then)...)
	}
	return r
}

// compares appends conditions on the revision of the last change, because etcd's version of a key
// restarts with every creation.
func compares(cs []*etcdserverpb.Compare, conds []kv.Compare) []*etcdserverpb.Compare {
	for _, cond := range conds {
		c := &etcdserverpb.Compare{Key: []byte(cond.Key), Target: etcdserverpb.Compare_MOD,
			Result:      etcdserverpb.Compare_EQUAL,
			TargetUnion: &etcdserverpb.Compare_ModRevision{ModRevision: int64(cond.Rev)}}
		if cond.Rev == kv.Exists {
			c.Result = etcdserverpb.Compare_GREATER
			c.TargetUnion = &etcdserverpb.Compare_ModRevision{ModRevision: int64(kv.Absent)}
		}
		cs = append(cs, c)
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

func refused(guard []kv.Compare, resp *etcdserverpb.TxnResponse) (*kv.Outcome, error) {
	if len(resp.Responses) != len(guard) {
		return nil, short("guards", len(resp.Responses), len(guard))
	}
	keys := make([]string, len(guard))
	for i, c := range guard {
		keys[i] = c.Key
	}
	return &kv.Outcome{Rev: kv.Rev(resp.Header.GetRevision()), Refused: true,
		Guard: appendPairs(nil, keys, resp.Responses)}, nil
}

// outcome adds one request's results to out, and returns the transactions to send again. If the
// answer does not match the request's structure, the outcome is unknown.
func outcome(out *kv.Outcome, units []unit, resp *etcdserverpb.TxnResponse) (again []unit, err error) {
	if len(resp.Responses) != len(units) {
		return nil, short("transactions", len(resp.Responses), len(units))
	}
	rev := kv.Rev(resp.Header.GetRevision())
	for i, u := range units { // before any result is taken
		if got, want := resp.Responses[i].GetResponseTxn(),
			u.answers(resp.Responses[i].GetResponseTxn().GetSucceeded()); len(got.GetResponses()) != want {
			return nil, short("operations", len(got.GetResponses()), want)
		}
	}
	for i, u := range units {
		got := resp.Responses[i].GetResponseTxn()
		rest := got.GetResponses()
		switch {
		case got.GetSucceeded():
			for n := range u.txns {
				t, r := &u.txns[n], &out.Results[u.at+n]
				r.OK, r.Rev = true, rev
				if t.Prev {
					r.Prev = previous(rest[0])
				}
				rest = rest[len(t.Ops):]
				r.Reads = appendPairs(nil, t.Then, rest)
				rest = rest[len(t.Then):]
			}
		case len(u.txns) == 1:
			out.Results[u.at].Reads = appendPairs(nil, u.txns[0].Else, rest)
		default:
			for n := range u.txns {
				again = append(again, unit{u.at + n, u.txns[n : n+1]})
			}
		}
	}
	out.Rev = max(out.Rev, rev)
	return again, nil
}

// answers returns the expected number of answers to a unit.
func (u unit) answers(succeeded bool) (n int) {
	for i := range u.txns {
		if t := &u.txns[i]; succeeded {
			n += len(t.Ops) + len(t.Then)
		} else if len(u.txns) == 1 {
			n += len(t.Else)
		}
	}
	return n
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

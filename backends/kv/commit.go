package kv

import (
	"context"

	"github.com/tenure-go/tenure/core/driver"
)

// Commit writes under leases. See driver.Session.
//
// A commit is conditional on the revisions of the shard's record and head. This process knows both
// from the grant and its last commit, so a commit takes one round trip. Commit first reads any
// record that is unknown to this process. If these records show that the write cannot succeed,
// Commit returns the error without writing. Only the head determines the order of commits, and only
// the shard's record determines whether the fence is current (rule F1).
func (s *session) Commit(ctx context.Context, writes []driver.Write) ([]driver.CommitResult, error) {
	b := s.b
	if err := driver.CheckWrites(writes, b.info.Limits); err != nil {
		return nil, err
	}
	results := make([]driver.CommitResult, len(writes))
	plans, send, err := b.plan(ctx, writes, results)
	if err != nil {
		return nil, err
	}
	txns := make([]Txn, len(send))
	heads := make([]driver.Head, len(send))
	for n, i := range send {
		txns[n], heads[n] = b.commit(&writes[i], plans[i])
	}
	size := func(n int) (bytes int) {
		for _, op := range txns[n].Ops {
			bytes += len(op.Key) + len(op.Value)
		}
		return bytes
	}
	err = b.write(ctx, nil, txns, size, func(n int, r *Result, err error) {
		i := send[n]
		w := &writes[i]
		switch {
		case err != nil:
			results[i].Err = err
		case r.OK:
			l := plans[i]
			l.head, l.headRev = heads[n], r.Rev
			b.leases.put(w.Fence.Shard, l)
			results[i] = driver.CommitResult{Head: heads[n], Versions: versions(w, r.Rev)}
		default:
			b.leases.drop(w.Fence.Shard, plans[i].rev)
			if _, err := b.judge(w, r.Reads); err != nil {
				results[i].Err = err
			} else {
				results[i].Err = retry("the shard's head moved")
			}
		}
	})
	if err != nil {
		return nil, err
	}
	for i := range writes {
		if results[i].Err == nil && trims(&writes[i]) {
			b.tidy(writes[i].Fence.Shard)
		}
	}
	return results, nil
}

// plan returns each write's lease, and the indexes of the writes to send. Records unknown to this
// process are read first. If they show that a write cannot succeed, its result contains the error.
func (b *Backend) plan(ctx context.Context, writes []driver.Write, results []driver.CommitResult) (plans []lease, send []int, err error) {
	plans, send = make([]lease, len(writes)), make([]int, 0, len(writes))
	var ask []int
	var keys []string
	for i := range writes {
		w := &writes[i]
		l, ok := b.leases.get(w.Fence.Shard)
		ok = ok && l.headKnown && l.owner == driver.Owner{Session: w.Fence.Session, Token: w.Fence.Token} && l.head.Number+1 == w.Number
		if ok && firstConflict(w, l.head, nil) < 0 {
			plans[i] = l
			send = append(send, i)
		} else {
			ask = append(ask, i)
			keys = append(keys, b.evidence(w)...)
		}
	}
	if len(ask) == 0 {
		return plans, send, nil
	}
	pairs, err := b.inspect(ctx, nil, keys)
	if err != nil {
		return nil, nil, err
	}
	for _, i := range ask {
		n := len(b.evidence(&writes[i]))
		l, err := b.judge(&writes[i], pairs[:n])
		pairs = pairs[n:]
		if err != nil {
			results[i].Err = err
			continue
		}
		b.leases.put(writes[i].Fence.Shard, l)
		plans[i] = l
		send = append(send, i)
	}
	return plans, send, nil
}

// evidence returns the keys that judge needs, in order: the shard, its head, and the items with
// preconditions.
func (b *Backend) evidence(w *driver.Write) []string {
	keys := make([]string, 2, 2+len(w.Ops))
	keys[0], keys[1] = b.keys.Shard(w.Fence.Shard), b.keys.Head(w.Fence.Shard)
	for i := range w.Ops {
		if op := &w.Ops[i]; op.IfVersion != driver.AnyVersion && isItem(op) {
			keys = append(keys, b.keys.Item(w.Fence.Shard, op.Key))
		}
	}
	return keys
}

// judge uses the records listed by evidence to return a write's lease, or the error that rules the
// write out. A dead fence takes precedence over other errors (rule F2).
func (b *Backend) judge(w *driver.Write, pairs []Pair) (lease, error) {
	owner, _, err := b.owner(pairs[0])
	if err != nil {
		return lease{}, notApplied(err)
	}
	if owner.Session != w.Fence.Session || owner.Token != w.Fence.Token {
		return lease{}, &driver.FencedError{Fence: w.Fence, Current: owner}
	}
	head, err := decodeHead(pairs[1])
	if err != nil {
		return lease{}, notApplied(err)
	}
	if head.Number+1 != w.Number {
		return lease{}, &driver.ConflictError{Shard: w.Fence.Shard, Op: driver.NumberConflict, Head: head}
	}
	if op := firstConflict(w, head, pairs[2:]); op >= 0 {
		return lease{}, &driver.ConflictError{Shard: w.Fence.Shard, Op: op, Head: head}
	}
	return lease{owner: owner, rev: pairs[0].Rev, head: head, headRev: pairs[1].Rev, headKnown: true}, nil
}

// firstConflict returns the index of the first operation whose precondition fails, or -1 if there
// is no conflict. The argument items contains the records of the items with preconditions, in
// order. If items is nil, the store checks these preconditions.
func firstConflict(w *driver.Write, head driver.Head, items []Pair) int {
	for i := range w.Ops {
		op := &w.Ops[i]
		switch {
		case op.Kind == driver.OpTrim && op.Through > head.Seq:
			return i
		case items == nil || !isItem(op) || op.IfVersion == driver.AnyVersion:
		default:
			if items[0].Rev != itemRev(op.IfVersion) {
				return i
			}
			items = items[1:]
		}
	}
	return -1
}

// commit returns a write's transaction under a lease, and the resulting head.
func (b *Backend) commit(w *driver.Write, l lease) (Txn, driver.Head) {
	shard := w.Fence.Shard
	t := Txn{
		If:   []Compare{{Key: b.keys.Shard(shard), Rev: l.rev}, {Key: b.keys.Head(shard), Rev: l.headRev}},
		Ops:  make([]Op, 1, len(w.Ops)+1),
		Else: b.evidence(w),
	}
	head := driver.Head{Number: w.Number, Seq: l.head.Seq, Oldest: max(1, l.head.Oldest), Nonce: w.Nonce, Token: w.Fence.Token}
	var payloads [][]byte
	for i := range w.Ops {
		op := &w.Ops[i]
		switch op.Kind {
		case driver.OpAppend:
			payloads = append(payloads, op.Value)
			continue
		case driver.OpTrim:
			head.Oldest = max(head.Oldest, op.Through+1)
			continue
		default: // puts and deletes have an item
		}
		key := b.keys.Item(shard, op.Key)
		if op.IfVersion != driver.AnyVersion {
			t.If = append(t.If, Compare{Key: key, Rev: itemRev(op.IfVersion)})
		}
		if op.Kind == driver.OpPut {
			t.Ops = append(t.Ops, Op{Key: key, Value: op.Value})
		} else {
			t.Ops = append(t.Ops, Op{Key: key, Delete: true})
		}
	}
	if len(payloads) > 0 {
		head.Seq += driver.Seq(len(payloads))
		t.Ops = append(t.Ops, Op{Key: b.keys.Chunk(shard, head.Seq), Value: encodeChunk(w.Fence.Token, w.Number, payloads)})
	}
	t.Ops[0] = Op{Key: b.keys.Head(shard), Value: encodeHead(head)}
	return t, head
}

func trims(w *driver.Write) bool {
	for i := range w.Ops {
		if w.Ops[i].Kind == driver.OpTrim {
			return true
		}
	}
	return false
}

// versions returns CommitResult.Versions for a write at revision rev.
func versions(w *driver.Write, rev Rev) []driver.Version {
	var v []driver.Version
	for i := range w.Ops {
		if w.Ops[i].Kind == driver.OpPut {
			if v == nil {
				v = make([]driver.Version, len(w.Ops))
			}
			v[i] = driver.Version(rev)
		}
	}
	return v
}

func isItem(op *driver.Op) bool { return op.Kind == driver.OpPut || op.Kind == driver.OpDelete }

func itemRev(v driver.Version) Rev {
	if v == driver.Absent {
		return Absent
	}
	return Rev(v)
}

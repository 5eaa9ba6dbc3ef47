package kv

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/kvrecord"
)

// Acquire claims shards. See driver.Session.
//
// The compare of a claim is on the revision of the shard's record, which also
// fixes its session. That the record at this revision is the one the claim saw
// is known from the mirror, else it is read first: the caller's idea of the holder is
// never trusted (rule A1). With the record its head is read, and first, too, where it
// was found damaged (rule D1).
func (s *session) Acquire(ctx context.Context, claims []driver.Claim) ([]driver.AcquireResult, error) {
	if err := driver.CheckClaims(claims); err != nil {
		return nil, err
	}
	b := s.b
	results := make([]driver.AcquireResult, len(claims))
	seen := make([]Rev, len(claims))
	send := make([]int, 0, len(claims)) // claims that are sent
	var ask []int                       // claims to be read first
	for i, c := range claims {
		owner, rev, known := b.mirror.shard(c.Shard)
		switch spoilt := b.leases.spoilt(c.Shard); {
		case known && !spoilt && (owner == c.Seen || sawFree(c) && owner.Session == ""):
			seen[i] = rev
		case c.Seen == (driver.Owner{}), sawFree(c) && !known && !spoilt:
			seen[i] = Absent
		default:
			ask = append(ask, i)
			continue
		}
		send = append(send, i)
	}
	if len(ask) > 0 {
		keys := make([]string, 0, 2*len(ask))
		for _, i := range ask {
			keys = append(keys, b.keys.Shard(claims[i].Shard), b.keys.Head(claims[i].Shard))
		}
		pairs, err := b.inspect(ctx, s, keys)
		if err != nil {
			return nil, err
		}
		for n, i := range ask {
			record, head := pairs[2*n], pairs[2*n+1]
			owner, _, err := b.owner(record)
			if err != nil || owner != claims[i].Seen && (!sawFree(claims[i]) || owner.Session != "") {
				results[i] = s.denied(claims[i], record, head)
				continue
			}
			if _, err := decodeHead(head); err != nil { // D1
				results[i].Err = err
				continue
			}
			seen[i] = record.Rev
			send = append(send, i)
		}
	}
	again, err := s.claimAll(ctx, claims, send, seen, results)
	if len(again) > 0 { // locks that were free, but not as this process knew them: R2
		_, _ = s.claimAll(ctx, claims, again, seen, results) // its errors are in the results
	}
	if err != nil && !anyGranted(results) {
		return nil, err
	}
	return results, nil
}

// claimAll sends claims, each with the revision that it saw of the shard's record, and
// returns those of locks that are free at another revision, with that in seen. An error
// means that nothing was applied.
func (s *session) claimAll(ctx context.Context, claims []driver.Claim, send []int, seen []Rev,
	results []driver.AcquireResult) (again []int, err error) {
	b := s.b
	txns := make([]Txn, len(send))
	for n, i := range send {
		txns[n] = s.claim(claims[i], seen[i])
	}
	moved := make([]bool, len(send))
	err = b.write(ctx, s, txns, nil, func(n int, r *Result, err error) {
		i := send[n]
		switch {
		case err != nil:
			results[i].Err = err
		case r.OK:
			var head Pair
			if len(txns[n].Then) > 0 {
				head = r.Reads[0]
			}
			results[i] = b.granted(claims[i].Shard, s.id, r.Rev, head)
		default:
			results[i] = s.denied(claims[i], r.Reads[0], r.Reads[1])
			held, ok := errors.AsType[*driver.HeldError](results[i].Err)
			if ok && sawFree(claims[i]) && held.Owner.Session == "" && r.Reads[0].Rev != seen[i] {
				if _, results[i].Err = decodeHead(r.Reads[1]); results[i].Err == nil { // D1
					moved[n], seen[i] = true, r.Reads[0].Rev
				}
			}
		}
	})
	for n := range moved {
		if moved[n] {
			again = append(again, send[n])
		}
	}
	return again, err
}

// sawFree reports whether a claim is of a lock that was seen free: it matches while the lock
// is free, whatever the token (rule R2).
func sawFree(c driver.Claim) bool { return driver.IsLock(c.Shard) && c.Seen.Session == "" }

// anyGranted reports whether an item was answered with its earlier success, so
// that the call as a whole is not one of which nothing was applied.
func anyGranted(results []driver.AcquireResult) bool {
	return slices.ContainsFunc(results, func(r driver.AcquireResult) bool { return r.Fence.Token != 0 })
}

// claim makes the transaction of a claim. A shard that never had a record, which
// is permanent, never had a head either: it need not be read.
func (s *session) claim(c driver.Claim, seen Rev) Txn {
	k := s.b.keys
	shard, head := k.Shard(c.Shard), k.Head(c.Shard)
	conds := make([]Compare, 1, 2)
	conds[0] = Compare{Key: shard, Rev: seen}
	then := []string{head}
	if seen == Absent {
		then = nil
	}
	if c.Seen.Session != "" && !c.Preempt {
		conds = append(conds, Compare{Key: k.Member(c.Seen.Session), Rev: Absent})
	}
	return Txn{
		If:   conds,
		Ops:  []Op{{Key: shard, Value: shardRecord{Session: s.id, From: c.Seen.Token}.Encode()}},
		Then: then,
		Else: []string{shard, head},
	}
}

// denied answers a claim that the record does not allow: with the earlier success
// of the same claim if that is what the record shows (rule A3).
func (s *session) denied(c driver.Claim, record, head Pair) driver.AcquireResult {
	owner, r, err := s.b.owner(record)
	if err != nil {
		return driver.AcquireResult{Err: notApplied(err)}
	}
	if owner.Session == s.id && r.From == c.Seen.Token && owner != c.Seen {
		return s.b.granted(c.Shard, s.id, record.Rev, head)
	}
	return driver.AcquireResult{Err: &driver.HeldError{Shard: c.Shard, Owner: owner}}
}

// granted is the lease that a write at revision rev made.
func (b *Backend) granted(shard driver.ShardID, to driver.SessionID, rev Rev, head Pair) driver.AcquireResult {
	f := driver.Fence{Shard: shard, Session: to, Token: b.token(rev)}
	l := lease{owner: driver.Owner{Session: to, Token: f.Token}, rev: rev}
	h, err := decodeHead(head)
	if err == nil {
		l.head, l.headRev, l.headKnown = h, head.Rev, true
	}
	b.leases.put(shard, l)
	b.leases.spoil(shard, err)
	if err != nil {
		// The lease is granted, so that the error must not say that it was not, and is
		// of no use: the caller gives it back, and the next claim is refused (D1).
		err = fmt.Errorf("tenure: shard %q was granted with a head of no use: %v", shard, err)
	}
	return driver.AcquireResult{Fence: f, Head: h, Err: err}
}

// Transfer gives leases to other sessions. See driver.Session.
func (s *session) Transfer(ctx context.Context, to []driver.Transfer) ([]driver.AcquireResult, error) {
	if err := driver.CheckTransfers(to, s.id); err != nil {
		return nil, err
	}
	b := s.b
	results := make([]driver.AcquireResult, len(to))
	fences := make([]driver.Fence, len(to))
	for i := range to {
		fences[i] = to[i].Fence
	}
	known, err := b.locate(ctx, s, fences, func(i int, record, head Pair) {
		results[i] = s.refused(to[i], record, head, true)
	})
	if err != nil {
		return nil, err
	}
	moved, err := s.pass(ctx, to, known, true, results)
	if len(moved) > 0 && err == nil {
		_, err = s.pass(ctx, to, moved, false, results)
	}
	if err != nil && !anyGranted(results) {
		return nil, err
	}
	return results, nil
}

// pass sends transfers. With carry it puts the head that this process knows behind the
// record, and compares it, so that the successor finds what the store has at the grant;
// it returns those that were refused since the head is another one. A head that was
// compared is not read.
func (s *session) pass(ctx context.Context, to []driver.Transfer, known []located, carry bool, results []driver.AcquireResult) (moved []located, err error) {
	b := s.b
	txns, carried := make([]Txn, len(known)), make([]*Pair, len(known))
	for n, at := range known {
		h := to[at.i]
		shard, head, target := b.keys.Shard(h.Fence.Shard), b.keys.Head(h.Fence.Shard), b.keys.Member(h.To)
		conds := []Compare{{Key: shard, Rev: at.rev}}
		if h.To != s.id { // the batch's guard has it otherwise
			conds = append(conds, Compare{Key: target, Rev: Exists})
		}
		value, then := shardRecord{Session: h.To, From: h.Fence.Token}.Encode(), []string{head}
		if l, ok := b.leases.get(h.Fence.Shard); carry && ok && l.headKnown && l.rev == at.rev && (l.headRev != 0 || !b.info.Limits.RecordsStay) {
			kh := knownHead(l)
			carried[n] = &Pair{Key: head, Value: kh.Text, Rev: l.headRev}
			value, then = kvrecord.AppendHead(value, kh), nil
			conds = append(conds, Compare{Key: head, Rev: l.headRev})
		}
		txns[n] = Txn{
			If:   conds,
			Ops:  []Op{{Key: shard, Value: value}},
			Then: then,
			Else: []string{shard, head, target},
		}
	}
	other := make([]bool, len(known)) // of those carried: the store's head is another one
	err = b.write(ctx, s, txns, nil, func(n int, r *Result, err error) {
		i := known[n].i
		h := to[i]
		switch {
		case err != nil:
			results[i].Err = err
		case r.OK && carried[n] != nil:
			results[i] = b.granted(h.Fence.Shard, h.To, r.Rev, *carried[n])
		case r.OK:
			results[i] = b.granted(h.Fence.Shard, h.To, r.Rev, r.Reads[0])
		case carried[n] != nil && r.Reads[0].Rev == known[n].rev && r.Reads[2].Rev != 0:
			other[n] = true
			results[i].Err = retry("the shard's head moved")
		default:
			results[i] = s.refused(h, r.Reads[0], r.Reads[1], r.Reads[2].Rev != 0)
		}
	})
	for n, again := range other {
		if again {
			moved = append(moved, known[n])
		}
	}
	return moved, err
}

// knownHead is the head of a lease, to go behind the record of its successor.
func knownHead(l lease) kvrecord.Head {
	if l.headRev == 0 {
		return kvrecord.Head{}
	}
	return kvrecord.Head{Rev: int64(l.headRev), Text: encodeHead(l.head)}
}

// refused answers a transfer that the records do not allow.
func (s *session) refused(h driver.Transfer, record, head Pair, target bool) driver.AcquireResult {
	owner, r, err := s.b.owner(record)
	switch {
	case err != nil:
		return driver.AcquireResult{Err: notApplied(err)}
	case owner.Session == h.To && r.From == h.Fence.Token && owner.Token != h.Fence.Token:
		return s.b.granted(h.Fence.Shard, h.To, record.Rev, head) // rule A3
	case owner.Session != h.Fence.Session || owner.Token != h.Fence.Token:
		return driver.AcquireResult{Err: &driver.FencedError{Fence: h.Fence, Current: owner}}
	case !target:
		return driver.AcquireResult{Err: noTarget(h.To)}
	}
	return driver.AcquireResult{Err: retry("the successor joined or left")}
}

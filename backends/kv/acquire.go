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
// A claim is conditional on the revision of the shard's record, which determines the holder. If
// this process lacks the record on which a claim is based, or if the head was found damaged (rule
// D1), Acquire first reads both records. Acquire never relies on the caller's view of the holder
// (rule A1).
func (s *session) Acquire(ctx context.Context, claims []driver.Claim) ([]driver.AcquireResult, error) {
	if err := driver.CheckClaims(claims); err != nil {
		return nil, err
	}
	b := s.b
	results := make([]driver.AcquireResult, len(claims))
	seen := make([]Rev, len(claims))
	send := make([]int, 0, len(claims)) // claims to send
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
			b.recall(claims[i].Shard, record)
			send = append(send, i)
		}
	}
	again, err := s.claimAll(ctx, claims, send, seen, results)
	if len(again) > 0 { // locks that were free, but at a revision unknown to this process: R2
		_, _ = s.claimAll(ctx, claims, again, seen, results) // its errors are in the results
	}
	if err != nil && !anyGranted(results) {
		return nil, err
	}
	return results, nil
}

// claimAll sends claims, each conditional on the revision in seen. For locks that are free at a
// different revision, claimAll corrects seen and returns the claims. An error means that nothing
// was applied.
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
			results[i] = b.granted(claims[i].Shard, s.id, txns[n].record(r.Rev), head)
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

// sawFree reports whether c claims a lock that was free when last seen. Such a claim succeeds if
// the lock is still free, regardless of the lock's token (rule R2).
func sawFree(c driver.Claim) bool { return driver.IsLock(c.Shard) && c.Seen.Session == "" }

// anyGranted reports whether any claim has succeeded. If so, the call was applied at least in part.
func anyGranted(results []driver.AcquireResult) bool {
	return slices.ContainsFunc(results, func(r driver.AcquireResult) bool { return r.Fence.Token != 0 })
}

// claim returns a claim's transaction. A shard without a record has never had a head, so there is
// no head to read.
func (s *session) claim(c driver.Claim, seen Rev) Txn {
	k := s.b.keys
	shard, head := k.Shard(c.Shard), k.Head(c.Shard)
	conds := make([]Compare, 1, 2)
	conds[0] = Compare{Key: shard, Rev: seen}
	then := []string{head}
	if seen == Absent {
		then = nil
	}
	end := driver.End("")
	if c.Seen.Session != "" && c.Preempt {
		end = driver.EndPreempted
	}
	if c.Seen.Session != "" && !c.Preempt {
		end = driver.EndGone
		conds = append(conds, Compare{Key: k.Member(c.Seen.Session), Rev: Absent})
	}
	return Txn{
		If:   conds,
		Ops:  []Op{{Key: shard, Value: s.b.noted(c.Shard, shardRecord{Session: s.id, From: c.Seen.Token}, seen, end, s.node)}},
		Then: then,
		Else: []string{shard, head},
	}
}

// denied returns the result of a claim that the shard's record does not allow. If the record shows
// that the same claim already succeeded, denied returns that success (rule A3).
func (s *session) denied(c driver.Claim, record, head Pair) driver.AcquireResult {
	owner, r, err := s.b.owner(record)
	if err != nil {
		return driver.AcquireResult{Err: notApplied(err)}
	}
	if owner.Session == s.id && r.From == c.Seen.Token && owner != c.Seen {
		return s.b.granted(c.Shard, s.id, record, head)
	}
	return driver.AcquireResult{Err: &driver.HeldError{Shard: c.Shard, Owner: owner}}
}

// The first operation of t writes the shard's record.
func (t *Txn) record(rev Rev) Pair { return Pair{Key: t.Ops[0].Key, Value: t.Ops[0].Value, Rev: rev} }

func (b *Backend) granted(shard driver.ShardID, to driver.SessionID, record, head Pair) driver.AcquireResult {
	f := driver.Fence{Shard: shard, Session: to, Token: b.token(record.Rev)}
	l := lease{owner: driver.Owner{Session: to, Token: f.Token}, rev: record.Rev, past: pastOf(record)}
	h, err := decodeHead(head)
	if err == nil {
		l.head, l.headRev, l.headKnown = h, head.Rev, true
	}
	b.leases.put(shard, l)
	b.leases.spoil(shard, err)
	if err != nil {
		// Because the lease was granted, the error must not satisfy driver.NotApplied. The caller
		// releases the unusable lease, and the next claim is refused (D1).
		err = fmt.Errorf("tenure: shard %q was granted with a head of no use: %v", shard, err)
	}
	return driver.AcquireResult{Fence: f, Head: h, Err: err}
}

// Transfer hands over leases to other sessions. See driver.Session.
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

// pass sends transfers, and returns those refused because of a different head. If carry is true,
// each transaction compares the known head and appends it to the record. The successor then
// receives the head with the grant.
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
		end, node := driver.EndRenewed, s.node
		if h.To != s.id {
			end, node = driver.EndPassed, b.mirror.node(h.To)
		}
		value := b.noted(h.Fence.Shard, shardRecord{Session: h.To, From: h.Fence.Token}, at.rev, end, node)
		then := []string{head}
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
	other := make([]bool, len(known)) // transfers with carry whose head differs in the store
	err = b.write(ctx, s, txns, nil, func(n int, r *Result, err error) {
		i := known[n].i
		h := to[i]
		switch {
		case err != nil:
			results[i].Err = err
		case r.OK && carried[n] != nil:
			results[i] = b.granted(h.Fence.Shard, h.To, txns[n].record(r.Rev), *carried[n])
		case r.OK:
			results[i] = b.granted(h.Fence.Shard, h.To, txns[n].record(r.Rev), r.Reads[0])
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

// knownHead returns a lease's head in the form used in the successor's record.
func knownHead(l lease) kvrecord.Head {
	if l.headRev == 0 {
		return kvrecord.Head{}
	}
	return kvrecord.Head{Rev: int64(l.headRev), Text: encodeHead(l.head)}
}

// refused returns the result of a transfer that the records do not allow.
func (s *session) refused(h driver.Transfer, record, head Pair, target bool) driver.AcquireResult {
	owner, r, err := s.b.owner(record)
	switch {
	case err != nil:
		return driver.AcquireResult{Err: notApplied(err)}
	case owner.Session == h.To && r.From == h.Fence.Token && owner.Token != h.Fence.Token:
		return s.b.granted(h.Fence.Shard, h.To, record, head) // rule A3
	case owner.Session != h.Fence.Session || owner.Token != h.Fence.Token:
		return driver.AcquireResult{Err: &driver.FencedError{Fence: h.Fence, Current: owner}}
	case !target:
		return driver.AcquireResult{Err: noTarget(h.To)}
	}
	return driver.AcquireResult{Err: retry("the successor joined or left")}
}

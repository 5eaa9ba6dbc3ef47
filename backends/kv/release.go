package kv

import (
	"context"
	"errors"
	"fmt"

	"github.com/tenure-go/tenure/core/driver"
)

// located is a current fence, with the revision of its shard's record.
type located struct {
	i   int // index in the call's items
	rev Rev
}

// locate finds the record revisions of current fences, and reads records unknown to this process.
// For each fence that is not current, locate calls stale with the shard's record and head. An error
// means that nothing was sent.
func (b *Backend) locate(ctx context.Context, s *session, fences []driver.Fence, stale func(i int, record, head Pair)) ([]located, error) {
	known := make([]located, 0, len(fences))
	var ask []int
	for i, f := range fences {
		if rev, ok := b.current(f); ok {
			known = append(known, located{i, rev})
		} else {
			ask = append(ask, i)
		}
	}
	if len(ask) == 0 {
		return known, nil
	}
	keys := make([]string, 0, 2*len(ask))
	for _, i := range ask {
		keys = append(keys, b.keys.Shard(fences[i].Shard), b.keys.Head(fences[i].Shard))
	}
	pairs, err := b.inspect(ctx, s, keys)
	if err != nil {
		return nil, err
	}
	for n, i := range ask {
		record, head := pairs[2*n], pairs[2*n+1]
		owner, _, err := b.owner(record)
		if err == nil && owner.Session == fences[i].Session && owner.Token == fences[i].Token {
			b.recall(fences[i].Shard, record)
			known = append(known, located{i, record.Rev})
		} else {
			stale(i, record, head)
		}
	}
	return known, nil
}

// Release frees leases. See driver.Session. Leases of a lost session are also freed, because
// success means that every given fence is dead (rule R1).
func (s *session) Release(ctx context.Context, fences []driver.Fence) error {
	if err := driver.CheckFences(fences); err != nil {
		return err
	}
	b := s.b
	failed := make([]error, len(fences))
	// If the record is damaged or belongs to another lease, there is nothing to release.
	known, err := b.locate(ctx, nil, fences, func(int, Pair, Pair) {})
	if err != nil {
		return err
	}
	stay, err := b.free(ctx, fences, known, !b.info.Limits.RecordsStay, failed)
	if err != nil {
		return err
	}
	// The call may already be applied in part, so the errors of both attempts are collected in
	// failed (rule A4).
	_, _ = b.free(ctx, fences, stay, false, failed)
	return releaseError(failed)
}

// Releases are written, but if remove is true, the records of locks without a head are removed
// instead. The result lists the locks with a head, whose records stay (rule R2).
func (b *Backend) free(ctx context.Context, fences []driver.Fence, known []located, remove bool,
	failed []error) (stay []located, err error) {
	txns := make([]Txn, len(known))
	for n, at := range known {
		f := fences[at.i]
		key := b.keys.Shard(f.Shard)
		txns[n] = Txn{If: []Compare{{Key: key, Rev: at.rev}}}
		if l, ok := b.leases.get(f.Shard); remove && driver.IsLock(f.Shard) && (!ok || l.headRev == 0) {
			txns[n].If = append(txns[n].If, Compare{Key: b.keys.Head(f.Shard), Rev: Absent})
			txns[n].Ops, txns[n].Else = []Op{{Key: key, Delete: true}}, []string{key}
		} else {
			txns[n].Ops = []Op{{Key: key, Value: b.noted(f.Shard, shardRecord{Token: f.Token}, at.rev, driver.EndReleased, "")}}
		}
	}
	again := make([]bool, len(known))
	err = b.write(ctx, nil, txns, nil, func(n int, r *Result, err error) {
		at := known[n]
		if again[n] = err == nil && !r.OK && len(r.Reads) > 0 && r.Reads[0].Rev == at.rev; again[n] {
			return
		}
		if failed[at.i] = err; err == nil {
			// Even if this release was not applied, the record no longer has the fence's revision.
			b.leases.drop(fences[at.i].Shard, at.rev)
		}
	})
	for n := range again {
		if again[n] {
			stay = append(stay, known[n])
		}
	}
	return stay, err
}

// releaseError joins the errors of a call that may be applied in part. The result never satisfies
// driver.NotApplied (rule A4).
func releaseError(failed []error) error {
	if err := errors.Join(failed...); err != nil {
		return fmt.Errorf("tenure: not all leases were released: %s", err.Error())
	}
	return nil
}

func noTarget(to driver.SessionID) error {
	return fmt.Errorf("tenure: %w: %q", driver.ErrNoTarget, to)
}

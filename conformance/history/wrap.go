package history

import (
	"context"
	"errors"

	"github.com/tenure-go/tenure/core/driver"
)

// Wrap returns b with all that bears on leases, commits and logs recorded, one
// Operation for each item of a batch. Heartbeats, views, items and tails pass
// unrecorded. It does not own r; closing it closes b.
func Wrap(b driver.Backend, r *Recorder) driver.Backend { return &backend{Backend: b, r: r} }

type backend struct {
	driver.Backend
	r *Recorder
}

type session struct {
	driver.Session
	r *Recorder
}

var (
	_ driver.Backend = (*backend)(nil)
	_ driver.Session = (*session)(nil)
)

// Join records the join.
func (b *backend) Join(ctx context.Context, m driver.Member) (driver.Session, error) {
	op := b.r.Call(Operation{Kind: Join, Session: m.Session, Node: m.Node, Supersede: m.Supersede})
	s, err := b.Backend.Join(ctx, m)
	op.end(err)
	b.r.Return(op)
	if err != nil {
		return nil, err
	}
	return &session{Session: s, r: b.r}, nil
}

// ReadLog records the page.
func (b *backend) ReadLog(ctx context.Context, shard driver.ShardID, after driver.Seq, max int) (*driver.LogPage, error) {
	op := b.r.Call(Operation{Kind: Read, Shard: shard, After: after})
	page, err := b.Backend.ReadLog(ctx, shard, after, max)
	op.end(err)
	if err != nil {
		op.Outcome = Refused // a read has no effect, whatever became of it
	} else {
		op.Head = page.Head
		for _, e := range page.Entries {
			op.Entries = append(op.Entries, entry(e))
		}
	}
	b.r.Return(op)
	return page, err
}

// Acquire records each claim.
func (s *session) Acquire(ctx context.Context, claims []driver.Claim) ([]driver.AcquireResult, error) {
	ops := make([]Operation, len(claims))
	for i, c := range claims {
		ops[i] = s.r.Call(Operation{Kind: Acquire, Shard: c.Shard, Session: s.ID(), Seen: c.Seen, Preempt: c.Preempt})
	}
	res, err := s.Session.Acquire(ctx, claims)
	s.granted(ops, res, err)
	return res, err
}

// Transfer records each handover.
func (s *session) Transfer(ctx context.Context, to []driver.Handover) ([]driver.AcquireResult, error) {
	ops := make([]Operation, len(to))
	for i, h := range to {
		ops[i] = s.r.Call(Operation{Kind: Transfer, Shard: h.Fence.Shard, Session: s.ID(), Fence: h.Fence, Target: h.To})
	}
	res, err := s.Session.Transfer(ctx, to)
	s.granted(ops, res, err)
	return res, err
}

func (s *session) granted(ops []Operation, res []driver.AcquireResult, err error) {
	for i := range ops {
		if err != nil || i >= len(res) {
			ops[i].end(orMissing(err))
		} else {
			ops[i].end(res[i].Err)
			if res[i].Err == nil {
				ops[i].Granted, ops[i].Head = res[i].Fence, res[i].Head
			}
		}
		s.r.Return(ops[i])
	}
}

// Release records each fence.
func (s *session) Release(ctx context.Context, fences []driver.Fence) error {
	ops := make([]Operation, len(fences))
	for i, f := range fences {
		ops[i] = s.r.Call(Operation{Kind: Release, Shard: f.Shard, Session: s.ID(), Fence: f})
	}
	err := s.Session.Release(ctx, fences)
	for i := range ops {
		ops[i].end(err)
		s.r.Return(ops[i])
	}
	return err
}

// Commit records each write.
func (s *session) Commit(ctx context.Context, writes []driver.Write) ([]driver.CommitResult, error) {
	ops := make([]Operation, len(writes))
	for i, w := range writes {
		op := Operation{Kind: Commit, Shard: w.Fence.Shard, Session: s.ID(), Fence: w.Fence, Number: w.Number, Nonce: w.Nonce}
		for _, o := range w.Ops {
			if o.Kind == driver.OpAppend {
				op.Entries = append(op.Entries, Entry{Token: w.Fence.Token, Number: w.Number, Digest: Digest(o.Value)})
			}
		}
		ops[i] = s.r.Call(op)
	}
	res, err := s.Session.Commit(ctx, writes)
	for i := range ops {
		if err != nil || i >= len(res) {
			ops[i].end(orMissing(err))
		} else {
			ops[i].end(res[i].Err)
			ops[i].committed(res[i].Head)
		}
		s.r.Return(ops[i])
	}
	return res, err
}

// Evict records each suspect.
func (s *session) Evict(ctx context.Context, suspects []driver.Suspect) ([]driver.EvictResult, error) {
	ops := make([]Operation, len(suspects))
	for i, x := range suspects {
		ops[i] = s.r.Call(Operation{Kind: Evict, Session: s.ID(), Target: x.Session})
	}
	res, err := s.Session.Evict(ctx, suspects)
	for i := range ops {
		switch {
		case err != nil || i >= len(res):
			ops[i].end(orMissing(err))
		case res[i].Err == nil && !res[i].Evicted:
			ops[i].Outcome, ops[i].Reason = Refused, "changed or gone"
		default:
			ops[i].end(res[i].Err)
		}
		s.r.Return(ops[i])
	}
	return res, err
}

// Close records the leaving.
func (s *session) Close(ctx context.Context) error {
	op := s.r.Call(Operation{Kind: Leave, Session: s.ID()})
	err := s.Session.Close(ctx)
	op.end(err)
	s.r.Return(op)
	return err
}

// errMissing stands for a result that a backend did not return.
var errMissing = errors.New("the backend returned no result for this item")

func orMissing(err error) error {
	if err == nil {
		return errMissing
	}
	return err
}

// end sets the outcome that err tells (rule E1).
func (o *Operation) end(err error) {
	if err == nil {
		o.Outcome = OK
		return
	}
	o.Outcome, o.Reason = Unknown, err.Error()
	if !driver.NotApplied(err) {
		return
	}
	o.Outcome = Refused
	var (
		held     *driver.HeldError
		fenced   *driver.FencedError
		conflict *driver.ConflictError
	)
	switch {
	case errors.As(err, &held):
		o.Reason, o.Current = ReasonHeld, held.Owner
	case errors.As(err, &fenced):
		o.Reason, o.Current = ReasonFenced, fenced.Current
	case errors.As(err, &conflict) && conflict.Op == driver.NumberConflict:
		o.Reason = ReasonNumber
	case errors.As(err, &conflict):
		o.Reason = ReasonConflict
	}
}

// committed sets the head after an accepted commit, and numbers its entries.
func (o *Operation) committed(head driver.Head) {
	if o.Outcome != OK {
		return
	}
	o.Head = head
	entries := make([]Entry, len(o.Entries))
	for i, e := range o.Entries {
		e.Seq = head.Seq - driver.Seq(len(o.Entries)-1-i)
		entries[i] = e
	}
	o.Entries = entries
}

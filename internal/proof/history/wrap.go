package history

import (
	"context"
	"errors"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/proof/intercept"
)

// Wrap returns a backend like b, except that r records all calls about leases, commits and logs,
// with one Operation for each item of a batch. Wrap does not record heartbeats, views, items and
// tails. Closing the returned backend closes b, but does not close r.
func Wrap(b driver.Backend, r *Recorder) driver.Backend {
	return intercept.Wrap(b, r.around)
}

// WrapSession is like Wrap for one session, except that it does not record the session's join.
func WrapSession(s driver.Session, r *Recorder) driver.Session {
	return intercept.WrapSession(s, r.around)
}

func (r *Recorder) around(ctx context.Context, c *intercept.Call, proceed func(context.Context) error) error {
	ops := begun(c)
	for i := range ops {
		ops[i] = r.Call(ops[i])
	}
	err := proceed(ctx)
	for i := range ops {
		ops[i].ended(c, i, err)
		r.Return(ops[i])
	}
	return err
}

// begun returns an operation for each item of the call, or no operations if the call is not
// recorded.
func begun(c *intercept.Call) (ops []Operation) {
	switch c.Op {
	case intercept.Join:
		m := c.Member
		return []Operation{{Kind: Join, Session: m.Session, Node: m.Node, Supersede: m.Supersede}}
	case intercept.ReadLog:
		return []Operation{{Kind: Read, Shard: c.Shard, After: c.After}}
	case intercept.Close:
		ops = []Operation{{Kind: Leave}}
	default: // the others have items, see below
	}
	for _, x := range c.Claims {
		ops = append(ops, Operation{Kind: Acquire, Shard: x.Shard, Seen: x.Seen, Preempt: x.Preempt})
	}
	for _, x := range c.Transfers {
		ops = append(ops, Operation{Kind: Transfer, Shard: x.Fence.Shard, Fence: x.Fence, Target: x.To})
	}
	for _, f := range c.Fences {
		ops = append(ops, Operation{Kind: Release, Shard: f.Shard, Fence: f})
	}
	for _, x := range c.Suspects {
		ops = append(ops, Operation{Kind: Evict, Target: x.Session})
	}
	for _, w := range c.Writes {
		op := Operation{Kind: Commit, Shard: w.Fence.Shard, Fence: w.Fence, Number: w.Number, Nonce: w.Nonce}
		for _, o := range w.Ops {
			if o.Kind == driver.OpAppend {
				op.Entries = append(op.Entries, Entry{Token: w.Fence.Token, Number: w.Number, Digest: Digest(o.Value)})
			}
		}
		ops = append(ops, op)
	}
	for i := range ops {
		ops[i].Session = c.Session.ID()
	}
	return ops
}

// ended sets the outcome of item i of the call.
func (o *Operation) ended(c *intercept.Call, i int, err error) {
	results := map[Kind]int{
		Acquire: len(c.Granted), Transfer: len(c.Granted), Commit: len(c.Committed), Evict: len(c.Evicted),
	}
	if n, batch := results[o.Kind]; batch && err == nil && i >= n {
		err = errMissing
	}
	if err != nil {
		o.end(err)
		if o.Kind == Read {
			o.Outcome = Refused // a read never has an effect
		}
		return
	}
	switch o.Kind {
	case Acquire, Transfer:
		if o.end(c.Granted[i].Err); o.Outcome == OK {
			o.Granted, o.Head = c.Granted[i].Fence, c.Granted[i].Head
		}
	case Commit:
		o.end(c.Committed[i].Err)
		o.committed(c.Committed[i].Head)
	case Evict:
		if o.end(c.Evicted[i].Err); o.Outcome == OK && !c.Evicted[i].Evicted {
			o.Outcome, o.Reason = Refused, "changed or gone"
		}
	case Read:
		o.Outcome, o.Head = OK, c.Page.Head
		for _, e := range c.Page.Entries {
			o.Entries = append(o.Entries, entry(e))
		}
	default:
		o.Outcome = OK
	}
}

var errMissing = errors.New("the backend returned no result for this item")

// end sets the outcome according to err (rule E1).
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

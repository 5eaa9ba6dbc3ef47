package core

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/fsm"
)

type outcome struct {
	head     driver.Head
	versions []driver.Version
	err      error
	last     bool           // nothing can be sent after this write, because it was fenced or the next number is unknown
	number   driver.WriteNo // number of the last attempt; 0 if the number has not changed
}

// settle repeats one write until its outcome is known. The first attempt returned res and err.
// After an attempt with an unknown outcome, settle no longer changes the number and the nonce. The
// write is therefore applied at most once (F1), and can be found again (S15). The attempts end at
// most two call time-outs after the lease ends: one for the attempt in progress, and one to find
// the outcome.
func (l *Lease) settle(
	base driver.Head, w driver.Write, res driver.CommitResult, err error, from []context.Context,
) (out outcome) {
	defer func() { out.number = w.Number }()
	r := retrier{l: l, from: from}
	unknown := false
	for ; ; res, err = r.commit(w) {
		var conflict *driver.ConflictError
		switch {
		case err == nil:
			return outcome{head: res.Head, versions: res.Versions}
		case errors.Is(err, driver.ErrFenced):
			if unknown {
				return l.afterFenced(&r, w, base, err)
			}
			return l.fencedOut(err)
		case errors.As(err, &conflict):
			h := conflict.Head
			switch {
			case isMine(h, w):
				return outcome{head: h}
			case unknown && h.Number >= w.Number:
				return l.lookUp(&r, w, base, h, err)
			case conflict.Op != driver.NumberConflict:
				return outcome{err: err}
			case h.Number < base.Number:
				return outcome{err: fmt.Errorf("tenure: shard %q: head went back from commit %d to %d: %w",
					l.fence.Shard, base.Number, h.Number, ErrStoreChanged), last: true}
			case unknown:
				return outcome{err: l.unknown(err), last: true}
			}
			base = h // not applied, because another writer used this fence
			w.Number, w.Nonce = h.Number+1, newNonce()
		case errors.Is(err, driver.ErrDamaged) && unknown: // unknown until it is repaired
			return outcome{err: l.unknown(err), last: true}
		case errors.Is(err, driver.ErrRetry) && (unknown || !errors.Is(err, driver.ErrDenied) || !l.e.trouble.denied.Load()): // C18
		case driver.NotApplied(err) && !unknown:
			return outcome{err: fmt.Errorf("tenure: shard %q: commit: %w", l.fence.Shard, err), last: errors.Is(err, ErrStoreChanged)}
		default:
			unknown = true
		}
		if unknown {
			if !r.wait(true) {
				return outcome{err: l.unknown(err), last: true}
			}
		} else if !r.wait(false) {
			return outcome{err: notSent(l.fence.Shard, errors.Join(l.Err(), err))}
		}
	}
}

// fencedOut returns the outcome of a write that the store refused because of its fence.
func (l *Lease) fencedOut(err error) outcome {
	var current driver.Owner
	var f *driver.FencedError
	if errors.As(err, &f) {
		current = f.Current
	}
	l.e.note.refused(l.fence, current)
	l.e.feed(fsm.Input{Kind: fsm.InFenced, Shard: l.fence.Shard, Token: l.fence.Token, Owner: current})
	return outcome{err: fmt.Errorf("tenure: shard %q: commit: %w", l.fence.Shard, err), last: true}
}

// afterFenced returns the outcome if the fence is no longer current but an earlier attempt may have
// been applied.
func (l *Lease) afterFenced(r *retrier, w driver.Write, base driver.Head, fenced error) outcome {
	refused := l.fencedOut(fenced)
	page, err := r.readLog(0, 0)
	if err != nil {
		return outcome{err: l.unknown(err), last: true}
	}
	if page.Head.Number < w.Number {
		return refused // the write can no longer be applied
	}
	out := l.lookUp(r, w, base, page.Head, fenced)
	out.last = true
	return out
}

// lookUp uses the log and the head to decide whether the write was applied. The head's number must
// not be below the write's. If the write has no entry and other writes followed it, lookUp cannot
// decide.
func (l *Lease) lookUp(r *retrier, w driver.Write, base, head driver.Head, refusal error) outcome {
	if isMine(head, w) {
		return outcome{head: head}
	}
	refused := outcome{err: fmt.Errorf("tenure: shard %q: commit: %w", l.fence.Shard, refusal)}
	if head.Number == w.Number {
		return refused // another write has the number
	}
	appends := 0
	for i := range w.Ops {
		if w.Ops[i].Kind == driver.OpAppend {
			appends++
		}
	}
	if appends == 0 {
		return outcome{err: l.unknown(refusal)}
	}
	page, err := r.readLog(base.Seq, 1)
	switch {
	case err != nil:
		return outcome{err: l.unknown(err)}
	case len(page.Entries) == 0 || page.Entries[0].Number != w.Number || page.Entries[0].Token != w.Fence.Token:
		return refused
	}
	head = driver.Head{Number: w.Number, Seq: base.Seq + Seq(appends), Oldest: base.Oldest, Nonce: w.Nonce, Token: w.Fence.Token}
	return outcome{head: head}
}

func (l *Lease) unknown(why error) error {
	return fmt.Errorf("tenure: shard %q: commit: %w: %v", l.fence.Shard, ErrUnknown, why)
}

func isMine(h driver.Head, w driver.Write) bool {
	return h.Number == w.Number && h.Nonce == w.Nonce && h.Token == w.Fence.Token
}

func newNonce() driver.Nonce {
	for {
		if n := rand.Uint64(); n != 0 {
			return driver.Nonce(n)
		}
	}
}

// A retrier repeats the attempts to apply one write.
type retrier struct {
	l     *Lease
	from  []context.Context // contexts of the commits in the write, for hooks
	n     int
	endBy fsm.Instant // one call time-out after the end of the lease was first noticed, or 0
}

func (r *retrier) commit(w driver.Write) (driver.CommitResult, error) {
	e := r.l.e
	results, err := e.commitCall(r.limit(), r.l.sess, []driver.Write{w}, r.from)
	if err != nil {
		return driver.CommitResult{}, err
	}
	return results[0], results[0].Err
}

// limit returns the next call's time-out: its patience, but at most one call time-out, and not
// beyond endBy.
func (r *retrier) limit() time.Duration {
	e := r.l.e
	d := min(e.o.CallTimeout, e.commits.patience(e.o.TTL)<<min(r.n/4, 10))
	if r.endBy != 0 {
		d = min(d, r.endBy.Sub(e.clk.now()))
	}
	return d
}

func (r *retrier) readLog(after Seq, max int) (*driver.LogPage, error) {
	for {
		ctx, cancel := context.WithTimeout(r.l.e.callCtx, r.limit())
		ctx, call := r.l.e.note.startCall(ctx, callReadHead, 0, r.l.fence.Shard, nil)
		page, err := r.l.e.b.ReadLog(ctx, r.l.fence.Shard, after, max)
		cancel()
		call.done(err)
		r.l.e.storeChanged(err)
		r.l.e.damaged(err)
		if err == nil || errors.Is(err, driver.ErrTrimmed) || errors.Is(err, driver.ErrDamaged) || !r.wait(true) {
			return page, err
		}
	}
}

// wait backs off before the next attempt, and reports whether that attempt is allowed. While the
// lease is valid, further attempts are always allowed. After the lease has ended, attempts continue
// only to find the outcome of a write that was sent, for one more call time-out.
func (r *retrier) wait(sent bool) bool {
	e := r.l.e
	d := min(5*time.Millisecond<<min(r.n, 16), max(e.o.TTL/12, 5*time.Millisecond))
	r.n++
	t := time.NewTimer(e.dice.jittered(d))
	defer t.Stop()
	select {
	case <-t.C:
	case <-e.callCtx.Done():
		return false
	}
	if r.l.Err() == nil {
		return true
	}
	if !sent {
		return false
	}
	now := e.clk.now()
	if r.endBy == 0 {
		r.endBy = now.Add(e.o.CallTimeout)
	}
	return now < r.endBy
}

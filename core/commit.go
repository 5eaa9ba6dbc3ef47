package core

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/core/fsm"
)

// Committed is what a Commit did.
type Committed struct {
	Number driver.WriteNo // of the commit; several callers may share one
	First  Seq            // of the first entry that this call appended; 0 if none
	Last   Seq            // of the last; the entries between are this call's too
	// Versions has, for each operation, the version that a Put gave its item, 0
	// for other kinds. Nil without a Put, and where an unknown outcome was settled
	// by reading back: Get tells then.
	Versions []Version
}

// Commit applies ops, made with Put, PutIf, Delete, DeleteIf, Append and Trim, as
// one atomic step under the lease's fence: all of them or none (F1). It may be
// called from many goroutines; what arrives while a commit is in flight forms the
// next one, up to the backend's limits, and each caller gets its own result. A
// commit with preconditions or a Trim goes alone. The values are copied.
//
// ctx bounds the caller's wait only. NotApplied tells whether an error means that
// nothing was written:
//
//   - ErrFenced: somebody else was granted the shard; the lease is lost.
//   - *ConflictError: a precondition does not hold; Op is its index in ops.
//   - ErrInvalid, ErrTooLarge: refused before anything was sent.
//   - *DamagedError: the shard's record or head cannot be read; nothing can be
//     committed before it is mended.
//   - ErrLost, ErrReleased: the lease was not valid any more; nothing was sent.
//   - ErrRetry with ctx's error: ctx ended before it was sent.
//   - ErrUnknown: ctx ended while it was in flight, or the store stayed out of
//     reach until the lease was over. It may have been applied, or may be yet.
//
// A lost reply is no error: the same write, with the same number and nonce, is
// sent again until the store tells what became of it (S15).
func (l *Lease) Commit(ctx context.Context, ops ...Op) (Committed, error) {
	p, err := l.newPending(ops)
	if err != nil {
		return Committed{}, err
	}
	if err := l.Err(); err != nil {
		return Committed{}, notSent(l.fence.Shard, err)
	}
	if ctx.Err() != nil {
		return Committed{}, fmt.Errorf("tenure: shard %q: %w: %w", l.fence.Shard, ErrRetry, context.Cause(ctx))
	}
	if err := l.enqueue(p); err != nil {
		return Committed{}, err
	}
	select {
	case <-p.done:
		return p.res, p.err
	case <-ctx.Done():
		return l.giveUp(ctx, p)
	}
}

// Append appends one entry to the shard's decision log and returns its number. It
// is a Commit of one.
func (l *Lease) Append(ctx context.Context, payload []byte) (Seq, error) {
	c, err := l.Commit(ctx, Op{Kind: driver.OpAppend, Value: payload})
	return c.Last, err
}

// committer gathers a lease's commits. At most one write is in flight, sent by a
// goroutine that lives while there is something to send.
type committer struct {
	mu     sync.Mutex
	head   driver.Head // as the last commit left it
	queue  []*pending
	busy   bool
	closed bool  // the lease ended, or its handler returned
	err    error // why nothing can be sent any more although not closed
	idle   signal
}

// pending is one caller's commit.
type pending struct {
	ops     []driver.Op
	size    int
	appends int
	keyed   bool
	solo    bool // has a precondition or a trim, whose failure must be this caller's alone
	sent    bool // under committer.mu
	done    chan struct{}
	res     Committed // valid, as err, after done
	err     error
}

func notSent(s ShardID, why error) error {
	return fmt.Errorf("tenure: shard %q: commit not sent: %w", s, why)
}

func (l *Lease) newPending(ops []Op) (*pending, error) {
	check := driver.Write{Fence: l.fence, Number: 1, Nonce: 1, Ops: ops}
	if err := driver.CheckWrite(check, l.e.info.Limits); err != nil {
		return nil, err
	}
	p := &pending{ops: slices.Clone(ops), done: make(chan struct{})}
	values := 0
	for i := range ops {
		values += len(ops[i].Value)
	}
	buf := make([]byte, 0, values)
	for i := range p.ops {
		op := &p.ops[i]
		p.size += len(op.Key) + len(op.Value)
		from := len(buf)
		buf = append(buf, op.Value...)
		op.Value = buf[from:len(buf):len(buf)]
		switch op.Kind {
		case driver.OpAppend:
			p.appends++
		case driver.OpTrim:
			p.solo = true
		case driver.OpPut, driver.OpDelete:
			p.keyed = true
			p.solo = p.solo || op.IfVersion != driver.AnyVersion
		}
	}
	return p, nil
}

func (l *Lease) enqueue(p *pending) error {
	c := &l.commits
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.err != nil:
		return notSent(l.fence.Shard, c.err)
	case c.closed:
		if err := l.Err(); err != nil {
			return notSent(l.fence.Shard, err)
		}
		return notSent(l.fence.Shard, ErrReleased)
	}
	c.queue = append(c.queue, p)
	if !c.busy {
		c.busy = true
		l.e.calls.Go(l.pump)
	}
	return nil
}

// giveUp ends a caller's wait: it takes back what was not sent.
func (l *Lease) giveUp(ctx context.Context, p *pending) (Committed, error) {
	c := &l.commits
	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case <-p.done:
		return p.res, p.err
	default:
	}
	if p.sent {
		return Committed{}, fmt.Errorf("tenure: shard %q: commit in flight: %w: %w", l.fence.Shard, ErrUnknown, context.Cause(ctx))
	}
	c.queue = slices.DeleteFunc(c.queue, func(q *pending) bool { return q == p })
	return Committed{}, fmt.Errorf("tenure: shard %q: commit not sent: %w: %w", l.fence.Shard, ErrRetry, context.Cause(ctx))
}

// close refuses further commits.
func (c *committer) close() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
}

// settled closes the committer and waits until what was sent has an outcome. The
// wait is bounded, as settle is.
func (c *committer) settled() {
	for {
		c.mu.Lock()
		c.closed = true
		if !c.busy {
			c.mu.Unlock()
			return
		}
		w := c.idle.wait()
		c.mu.Unlock()
		<-w
	}
}

// pump sends batch after batch until nothing is left.
func (l *Lease) pump() {
	for {
		runtime.Gosched() // lets the callers just served queue their next
		batch := l.nextBatch()
		if batch == nil {
			return
		}
		l.send(batch)
	}
}

// nextBatch takes what goes into one write. Nothing is sent under a lease that is
// not valid: all that waits is refused.
func (l *Lease) nextBatch() []*pending {
	c := &l.commits
	c.mu.Lock()
	defer c.mu.Unlock()
	refuse := c.err
	if refuse == nil {
		refuse = l.Err()
	}
	if refuse != nil {
		for _, p := range c.queue {
			p.finish(Committed{}, notSent(l.fence.Shard, refuse))
		}
		c.queue = nil
	}
	if len(c.queue) == 0 {
		c.busy = false
		c.idle.wake()
		return nil
	}
	n := l.e.fitting(c.queue)
	batch := c.queue[:n:n]
	c.queue = c.queue[n:]
	for _, p := range batch {
		p.sent = true
	}
	return batch
}

// fitting is how many of the first commits make one write within the limits: no
// key twice, and what must go alone does.
func (e *Elector) fitting(queue []*pending) int {
	lim := e.info.Limits
	ops, size := 0, 0
	var keys map[string]struct{}
	for n, p := range queue {
		ops += len(p.ops)
		size += p.size
		switch {
		case n == 0 && p.solo:
			return 1
		case n > 0 && (p.solo || lim.WriteOps > 0 && ops > lim.WriteOps || lim.WriteBytes > 0 && size > lim.WriteBytes):
			return n
		}
		if !p.keyed {
			continue
		}
		if keys == nil {
			keys = make(map[string]struct{})
		}
		for i := range p.ops {
			if k := p.ops[i].Key; k != "" {
				if _, dup := keys[k]; dup {
					return n // a key is once in each pending: it is another caller's
				}
				keys[k] = struct{}{}
			}
		}
	}
	return len(queue)
}

func (p *pending) finish(res Committed, err error) {
	p.res, p.err = res, err
	close(p.done)
}

// send makes one write of the batch and tells each caller.
func (l *Lease) send(batch []*pending) {
	n := 0
	for _, p := range batch {
		n += len(p.ops)
	}
	ops := batch[0].ops
	if len(batch) > 1 {
		ops = make([]driver.Op, 0, n)
		for _, p := range batch {
			ops = append(ops, p.ops...)
		}
	}
	base := l.Head()
	out := l.settle(base, ops)

	if len(batch) > 1 && refusedAsOne(out.err) {
		for _, p := range batch {
			l.send([]*pending{p})
		}
		return
	}
	l.e.storeChanged(out.err)
	c := &l.commits
	c.mu.Lock()
	defer c.mu.Unlock()
	if out.err != nil {
		if out.last {
			c.err = out.err
		}
		for _, p := range batch {
			p.finish(Committed{}, out.err)
		}
		return
	}
	c.head = out.head
	if out.last {
		c.err = ErrFenced
	}
	appends := 0
	for _, p := range batch {
		appends += p.appends
	}
	next := out.head.Seq - Seq(appends)
	versions := out.versions
	for _, p := range batch {
		res := Committed{Number: out.head.Number}
		if p.appends > 0 {
			res.First = next + 1
			next += Seq(p.appends)
			res.Last = next
		}
		if len(versions) >= len(p.ops) {
			if p.keyed {
				res.Versions = versions[:len(p.ops):len(p.ops)]
			}
			versions = versions[len(p.ops):]
		}
		p.finish(res, nil)
	}
}

// refusedAsOne reports whether a merged write was refused for what one of its
// commits asks, so that the others deserve to be sent alone.
func refusedAsOne(err error) bool {
	return errors.Is(err, ErrInvalid) || errors.Is(err, ErrTooLarge) || errors.Is(err, ErrUnsupported) ||
		errors.Is(err, ErrConflict) && !errors.Is(err, ErrUnknown)
}

// outcome is what became of one write.
type outcome struct {
	head     driver.Head
	versions []driver.Version
	err      error
	last     bool // nothing can be sent after it: fenced, or the next number is not known
}

// settle sends one write until it is known what became of it. The number and the
// nonce stay the same from the first attempt whose outcome is unknown, so that it
// is applied at most once (F1), and found again (S15). It ends at the latest two
// call time-outs after the lease: of the attempt that was under way, and of those
// that find out what became of it.
func (l *Lease) settle(base driver.Head, ops []driver.Op) outcome {
	w := driver.Write{Fence: l.fence, Number: base.Number + 1, Nonce: newNonce(), Ops: ops}
	r := retrier{l: l}
	unknown := false
	for {
		res, err := r.commit(w)
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
				return outcome{err: fmt.Errorf("tenure: shard %q: head went back from commit %d to %d: %w", l.fence.Shard, base.Number, h.Number, ErrStoreChanged), last: true}
			case unknown:
				return outcome{err: l.unknown(err), last: true}
			}
			base = h // certainly not applied; somebody else wrote under this fence
			w.Number, w.Nonce = h.Number+1, newNonce()
		case errors.Is(err, driver.ErrDamaged) && unknown: // nothing tells before it is mended
			return outcome{err: l.unknown(err), last: true}
		case errors.Is(err, driver.ErrRetry):
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

// fencedOut: the store refused the write for its fence.
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

// afterFenced: the fence is dead, but an earlier attempt may have come before.
func (l *Lease) afterFenced(r *retrier, w driver.Write, base driver.Head, fenced error) outcome {
	refused := l.fencedOut(fenced)
	page, err := r.readLog(0, 0)
	if err != nil {
		return outcome{err: l.unknown(err), last: true}
	}
	if page.Head.Number < w.Number {
		return refused // and it cannot come any more
	}
	out := l.lookUp(r, w, base, page.Head, fenced)
	out.last = true
	return out
}

// lookUp decides by head, which is at or past the write, and by the log, whether
// the write was applied. Without an entry of its own, a write that others
// followed cannot be found.
func (l *Lease) lookUp(r *retrier, w driver.Write, base, head driver.Head, refusal error) outcome {
	if isMine(head, w) {
		return outcome{head: head}
	}
	refused := outcome{err: fmt.Errorf("tenure: shard %q: commit: %w", l.fence.Shard, refusal)}
	if head.Number == w.Number {
		return refused // the number is another write's
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

// retrier makes the attempts of one write.
type retrier struct {
	l     *Lease
	n     int
	endBy fsm.Instant // a call time-out after the lease was first seen ended; 0: it was not
}

func (r *retrier) commit(w driver.Write) (driver.CommitResult, error) {
	e := r.l.e
	limit := min(r.left(), e.commitPatience()<<min(r.n/4, 10))
	ctx, cancel := context.WithTimeout(e.callCtx, limit)
	defer cancel()
	sent := time.Now()
	res, err := r.l.sess.Commit(ctx, []driver.Write{w})
	e.note.call(callCommit, len(w.Ops), time.Since(sent), err)
	e.storeChanged(err)
	if err != nil {
		return driver.CommitResult{}, err
	}
	slow := e.slowCommit.Load()
	e.slowCommit.Store(max(int64(time.Since(sent)), slow-slow/16))
	if len(res) != 1 {
		return driver.CommitResult{}, fmt.Errorf("tenure: the backend answered one write with %d results", len(res))
	}
	e.damaged(res[0].Err)
	return res[0], res[0].Err
}

// commitPatience is how long a commit may go unanswered before it is sent again: half
// a second, or eight times what commits took of late, up to half the TTL, or a second
// if that is more. It is short because a commit that comes twice does no harm, so that
// one that was lost with a server does not keep the shard waiting; it doubles every
// four attempts, for writes that take longer than any before.
func (e *Elector) commitPatience() time.Duration {
	return min(max(500*time.Millisecond, 8*time.Duration(e.slowCommit.Load())), max(e.o.TTL/2, time.Second))
}

// left bounds the next call: a call time-out, and not past endBy.
func (r *retrier) left() time.Duration {
	d := r.l.e.o.CallTimeout
	if r.endBy != 0 {
		d = min(d, r.endBy.Sub(r.l.e.clk.now()))
	}
	return d
}

func (r *retrier) readLog(after Seq, max int) (*driver.LogPage, error) {
	for {
		ctx, cancel := context.WithTimeout(r.l.e.callCtx, r.left())
		sent := time.Now()
		page, err := r.l.e.b.ReadLog(ctx, r.l.fence.Shard, after, max)
		cancel()
		r.l.e.note.call(callReadHead, 0, time.Since(sent), err)
		r.l.e.storeChanged(err)
		r.l.e.damaged(err)
		if err == nil || errors.Is(err, driver.ErrTrimmed) || errors.Is(err, driver.ErrDamaged) || !r.wait(true) {
			return page, err
		}
	}
}

// wait backs off before the next attempt, and reports whether there may be one:
// always while the lease is valid; after that only to find out what became of a
// write that was sent, for one more call time-out.
func (r *retrier) wait(sent bool) bool {
	e := r.l.e
	d := min(5*time.Millisecond<<min(r.n, 16), max(e.o.TTL/12, 5*time.Millisecond))
	r.n++
	t := time.NewTimer(d/2 + time.Duration(rand.Int64N(int64(d/2)+1)))
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

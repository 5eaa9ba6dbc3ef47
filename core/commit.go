package core

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/fsm"
	"github.com/tenure-go/tenure/internal/trace"
)

// Committed is the result of a Commit.
type Committed struct {
	Number driver.WriteNo // the commit's number; several callers may share it
	First  Seq            // the number of the first entry that this call appended; 0 if it appended none
	Last   Seq            // the number of the last entry; this call also appended all entries in between
	// Versions contains one element for each operation: the version that a Put gave its item, or 0
	// for any other operation. Versions may be nil if there is no Put. Versions is nil if only a
	// read revealed the outcome. In the latter case, Get returns the versions.
	Versions []Version
}

// Commit applies either all of ops or none of them, in one atomic step under the lease's fence
// (F1). Put, PutIf, Delete, DeleteIf, Append and Trim create operations. Any number of goroutines
// may call Commit. While a commit is in flight, the Elector gathers the next commits and sends them
// together, up to the backend's limits. Each caller gets the result of its own commit. A commit
// with preconditions or a Trim is always a separate write. Commit copies the values.
//
// The context ctx limits only the caller's wait. NotApplied reports whether an error means that
// nothing was written:
//
//   - ErrLost: this process no longer holds the lease. Usually, the process's own clock showed that
//     the lease had ended before anything was sent. If the store refused the write because another
//     session was granted the shard, the error also matches ErrFenced.
//   - *ConflictError: a precondition does not hold. The error's Op is the operation's index in ops.
//   - ErrInvalid, ErrTooLarge: this commit itself is invalid or too large.
//   - *DamagedError: the shard's record or head cannot be read. Commits fail until the damage is
//     repaired.
//   - ErrRetry with ctx's error: ctx ended before the commit was sent.
//   - ErrUnknown: ctx ended while the commit was in flight, or the store stayed unreachable until
//     the lease was over. The commit may have been applied, or may be applied later.
//
// A lost reply is not an error. The Elector sends the same write again, with the same number and
// nonce, until the store shows whether it was applied (S15).
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
	if l.e.o.Hooks.CallStart != nil {
		p.ctx = ctx
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

// Append commits one entry to the shard's decision log and returns the entry's number.
func (l *Lease) Append(ctx context.Context, payload []byte) (Seq, error) {
	c, err := l.Commit(ctx, Op{Kind: driver.OpAppend, Value: payload})
	return c.Last, err
}

// committer collects a lease's commits. At most one write is in flight.
type committer struct {
	mu     sync.Mutex
	head   driver.Head // the head after the last commit
	queue  []*pending
	flying []*pending // the commits in flight
	busy   bool       // the lease is waiting for its turn (see outbox), or a write is in flight
	closed bool       // the lease ended, or its handler returned
	err    error      // why nothing can be sent although the committer is not closed
	idle   signal

	untraced trace.Acks // commits that are not traced yet
}

// pending is one caller's commit.
type pending struct {
	ops     []driver.Op
	ctx     context.Context // the caller's context; nil unless a hook needs it
	size    int
	appends int
	keyed   bool
	solo    bool // has a precondition or a trim: its failure must affect only this caller
	sent    bool // guarded by committer.mu, like the field most
	most    int  // largest number of commits in its call; halved after each refusal of a whole call
	done    chan struct{}
	res     Committed // valid, like err, once done is closed
	err     error
}

// notSent returns the error of a commit that was not sent. Such a commit is certainly not applied,
// even if the commit before it has an unknown outcome (S16).
func notSent(s ShardID, why error) error {
	if errors.Is(why, ErrUnknown) {
		return fmt.Errorf("tenure: shard %q: commit not sent, behind another one: %w: %v", s, ErrRetry, why)
	}
	return fmt.Errorf("tenure: shard %q: commit not sent: %w", s, why)
}

func (l *Lease) newPending(ops []Op) (*pending, error) {
	check := driver.Write{Fence: l.fence, Number: 1, Nonce: 1, Ops: ops}
	if err := driver.CheckWrite(check, l.e.info.Limits); err != nil {
		return nil, err
	}
	p := &pending{ops: slices.Clone(ops), most: math.MaxInt, done: make(chan struct{})}
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
		return notSent(l.fence.Shard, revoked(l.fence, fsm.CauseReturned))
	}
	c.queue = append(c.queue, p)
	if !c.busy {
		c.busy = true
		l.e.commits.ready(l, p)
	}
	return nil
}

// giveUp handles the end of a caller's ctx, and removes the commit if it was not sent.
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
	p.finish(Committed{}, fmt.Errorf("tenure: shard %q: commit not sent: %w: %w", l.fence.Shard, ErrRetry, context.Cause(ctx)))
	return p.res, p.err
}

// landed waits until every commit that was sent before the call has an outcome, including commits
// whose callers gave up. The wait ends when ctx or the lease ends.
func (l *Lease) landed(ctx context.Context) error {
	c := &l.commits
	c.mu.Lock()
	sent := c.flying
	for _, p := range c.queue { // the commits of a divided write come first
		if p.most == math.MaxInt {
			break
		}
		sent = append(sent[:len(sent):len(sent)], p)
	}
	c.mu.Unlock()
	for _, p := range sent {
		select {
		case <-p.done:
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-l.ctx.Done():
			return context.Cause(l.ctx)
		}
	}
	return nil
}

// close refuses further commits.
func (c *committer) close() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
}

// settled closes the committer and waits until all sent commits have an outcome. The time limit of
// settle also applies to this wait.
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

// next returns the lease's next write, with up to most commits, or nil. If the lease is invalid,
// next refuses all waiting commits (S5).
func (l *Lease) next(most int) *delivery {
	c := &l.commits
	c.mu.Lock()
	defer c.mu.Unlock()
	now := l.clk.now() // this must precede the check of the lease
	refuse := l.Err()
	if refuse == nil {
		refuse = c.err
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
	n := l.e.fitting(c.queue[:min(len(c.queue), most)])
	parts := c.queue[:n:n]
	c.queue, c.flying = c.queue[n:], parts
	ops := parts[0].ops
	if n > 1 {
		ops = nil
	}
	for _, p := range parts {
		p.sent = true
		if n > 1 {
			ops = append(ops, p.ops...)
		}
	}
	return &delivery{l: l, parts: parts, base: c.head, w: l.write(c.head, ops), sent: now}
}

func (l *Lease) write(base driver.Head, ops []driver.Op) driver.Write {
	return driver.Write{Fence: l.fence, Number: base.Number + 1, Nonce: newNonce(), Ops: ops}
}

// fitting returns how many commits at the front of queue fit into one write. No key may occur twice
// in one write. A solo commit is the only commit in its write.
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

// delivery is one write of a lease and the commits that it merges.
type delivery struct {
	l     *Lease
	parts []*pending
	base  driver.Head // the head before the write
	w     driver.Write
	sent  fsm.Instant // an instant before the lease was checked for the first attempt
}

// settle determines a write's outcome after the first attempt, and reports it to the callers.
func (d *delivery) settle(res driver.CommitResult, err error) {
	out := d.l.settle(d.base, d.w, res, err, d.l.e.callers(d))
	if n := len(d.parts); n > 1 && refusedAsOne(out.err) {
		d.divide(n)
		return
	}
	d.finish(out)
}

// divide returns the commits of an unapplied write to the front of the queue. The next calls carry
// half as many commits. Each attempt to send a commit checks the lease (S5). Until a commit is sent
// again, its caller can withdraw it.
func (d *delivery) divide(commits int) {
	c := &d.l.commits
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range d.parts {
		p.sent, p.most = false, commits/2
	}
	c.queue, c.flying = slices.Concat(d.parts, c.queue), nil
}

func (d *delivery) finish(out outcome) {
	c := &d.l.commits
	d.l.e.storeChanged(out.err)
	if errors.Is(out.err, ErrStoreChanged) { // the change has ended every lease
		out.err = fmt.Errorf("%w: %w", out.err, ErrLost)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.flying = nil
	if d.l.e.traced != nil {
		d.traceOutcome(&out)
	}
	if out.err != nil {
		if out.last {
			c.err = out.err
		}
		for _, p := range d.parts {
			p.finish(Committed{}, out.err)
		}
		return
	}
	c.head = out.head
	if out.last {
		c.err = ErrFenced
	}
	appends := 0
	for _, p := range d.parts {
		appends += p.appends
	}
	next := out.head.Seq - Seq(appends)
	versions := out.versions
	for _, p := range d.parts {
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

// refusedAsOne reports whether a merged write was refused because of one of its commits. If so, the
// commits must be sent in smaller writes.
func refusedAsOne(err error) bool {
	return refusedTogether(err) || errors.Is(err, ErrConflict) && !errors.Is(err, ErrUnknown)
}

// refusedTogether reports whether a call was refused for a reason that may not apply to smaller
// calls (A4).
func refusedTogether(err error) bool {
	return errors.Is(err, ErrTooLarge) || errors.Is(err, ErrInvalid) || errors.Is(err, ErrUnsupported)
}

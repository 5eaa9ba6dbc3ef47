package core

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/tenure-go/tenure/core/driver"
)

// An outbox sends the writes of all of a process's leases. One call to Session.Commit sends all
// ready writes, up to the store's limits, with at most one write per lease. While
// driver.Limits.CommitCalls calls are in progress, ready writes are gathered for the next call. The
// outbox has no timer. If another call is allowed, the outbox sends a ready write immediately.
//
// The outbox sends only the first attempt of each write. If a write is not applied, it is settled
// separately, so it does not delay other writes (A4). A call may be refused for a reason that may
// not apply to smaller calls. The commits then wait for another turn, and the next calls contain at
// most half as many commits. If the server lowers a limit, the outbox therefore needs only a few
// more calls. A commit that is refused alone does not affect other commits.
type outbox struct {
	e *Elector

	mu      sync.Mutex
	waiting []turn // in the order in which the leases' writes became ready
	calls   int    // number of senders
	usual   time.Duration
	longest time.Duration // the longest time that a recent call took
}

// A turn is a lease whose next write is waiting. Each lease has at most one turn.
type turn struct {
	lease *Lease
	most  int // see pending.most
}

// If a call takes overdueAfter times as long as usual, the next call no longer waits for it. A
// locked row or a silent server may be the cause.
const overdueAfter = 4

// ready queues a lease that has commits to send, of which p is the first.
func (o *outbox) ready(l *Lease, p *pending) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.waiting = append(o.waiting, turn{l, p.most})
	o.start()
}

// start adds a sender if the limit allows. The caller holds o.mu.
func (o *outbox) start() {
	if o.calls < max(1, o.e.info.Limits.CommitCalls) {
		o.calls++
		o.e.calls.Go(o.send)
	}
}

func (o *outbox) send() {
	for {
		runtime.Gosched() // lets the callers that were just served queue their next commits
		batch, commits := o.next()
		if batch == nil || !o.call(batch, commits) {
			return
		}
	}
}

// next returns the writes of the next call, all from one session, and the number of their commits.
// If there are no writes, the sender ends.
func (o *outbox) next() (batch []*delivery, commits int) {
	limits := o.e.info.Limits
	var sess driver.Session
	most := math.MaxInt
	for size := 0; len(batch) < max(1, limits.BatchItems) && commits < most &&
		(limits.WriteBytes <= 0 || size < limits.WriteBytes); {
		t := o.take(sess, commits)
		if t.lease == nil {
			break
		}
		d := t.lease.next(min(most, t.most) - commits)
		if d == nil {
			continue
		}
		sess, most = t.lease.sess, min(most, t.most)
		batch = append(batch, d)
		commits += len(d.parts)
		for _, p := range d.parts {
			size += p.size
		}
	}
	return batch, commits
}

// take removes and returns the first waiting turn of session s that fits into a call with the given
// number of other commits. If s is nil, the turn may belong to any session, and the sender ends if
// no turn waits.
func (o *outbox) take(s driver.Session, others int) turn {
	o.mu.Lock()
	defer o.mu.Unlock()
	for i, t := range o.waiting {
		if (s == nil || t.lease.sess == s) && others < t.most {
			if i == 0 {
				o.waiting = o.waiting[1:]
			} else {
				o.waiting = slices.Delete(o.waiting, i, i+1)
			}
			return t
		}
	}
	if s == nil {
		o.calls--
	}
	return turn{}
}

// call sends the writes, and reports whether the sender may continue. After an overdue call, the
// sender must not continue, because another sender has replaced it.
func (o *outbox) call(batch []*delivery, commits int) bool {
	writes := make([]driver.Write, len(batch))
	for i, d := range batch {
		writes[i] = d.w
	}
	o.mu.Lock()
	late := max(10*time.Millisecond, overdueAfter*o.usual)
	o.mu.Unlock()
	overdue := time.AfterFunc(late, func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.calls--
		if len(o.waiting) > 0 {
			o.start()
		}
	})
	limit := min(o.e.o.CallTimeout, o.patience(o.e.o.TTL))
	results, err := o.e.commitCall(limit, batch[0].l.sess, writes, o.e.callers(batch...))
	goOn := overdue.Stop()
	for i, d := range batch {
		var res driver.CommitResult
		why := err
		if err == nil {
			res, why = results[i], results[i].Err
		}
		switch {
		case why == nil:
			d.finish(outcome{head: res.Head, versions: res.Versions})
		case commits > 1 && refusedTogether(why):
			d.divide(commits)
		default:
			o.e.calls.Go(func() {
				d.settle(res, why)
				o.again(d.l)
			})
			continue
		}
		o.again(d.l)
	}
	return goOn
}

// After a lease's write, again queues the lease if it has more commits to send.
func (o *outbox) again(l *Lease) {
	c := &l.commits
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.queue) > 0 {
		o.ready(l, c.queue[0])
		return
	}
	c.busy = false
	c.idle.wake()
}

// commitCall makes one call to Session.Commit. If the error is nil, there is a result for each
// write. The slice from contains the callers' contexts, if hooks need them.
func (e *Elector) commitCall(
	limit time.Duration, s driver.Session, writes []driver.Write, from []context.Context,
) ([]driver.CommitResult, error) {
	ctx, cancel := context.WithTimeout(e.callCtx, limit)
	defer cancel()
	ops := 0
	for i := range writes {
		ops += len(writes[i].Ops)
	}
	if len(from) > 0 {
		ctx, from = carried{ctx, from[0]}, from[1:]
	}
	var shard ShardID
	if len(writes) == 1 {
		shard = writes[0].Fence.Shard
	}
	ctx, call := e.note.startCall(ctx, callCommit, ops, shard, from)
	results, err := s.Commit(ctx, writes)
	took := call.done(err, itemsError(len(results), func(i int) error { return results[i].Err }))
	e.storeChanged(err)
	if err == nil && len(results) != len(writes) {
		err = fmt.Errorf("tenure: the backend answered %d writes with %d results", len(writes), len(results))
	}
	if err != nil {
		return nil, err
	}
	e.commits.learn(took)
	for i := range results {
		e.damaged(results[i].Err)
	}
	return results, nil
}

// callers returns the contexts of the commits in a call, if a hook needs them.
func (e *Elector) callers(batch ...*delivery) []context.Context {
	if e.o.Hooks.CallStart == nil {
		return nil
	}
	var all []context.Context
	for _, d := range batch {
		for _, p := range d.parts {
			all = append(all, p.ctx)
		}
	}
	return all
}

func (o *outbox) learn(took time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.usual += (took - o.usual) / 16
	o.longest = max(took, o.longest-o.longest/16)
}

// patience returns how long a call may go unanswered before its writes are sent again. The result
// is the larger of half a second and eight times the longest recent call. It is at most the larger
// of half the TTL and a second. This time can be short because a repeated commit is harmless. A
// write that was lost because a server failed therefore does not delay the shard for long. To allow
// for writes that take longer than any earlier write, the time doubles every four attempts.
func (o *outbox) patience(ttl time.Duration) time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	return min(max(500*time.Millisecond, 8*o.longest), max(ttl/2, time.Second))
}

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

// outbox sends the writes of all leases of a process. Those that are ready go into one
// Session.Commit, up to the store's limits, each lease's next write at most; the next
// call forms while as many are under way as the store gains from
// (driver.Limits.CommitCalls). There is no timer: a write that finds a call free leaves
// at once.
//
// A call carries a write's first attempt only. A write that was not applied then is
// settled by itself, so that it holds up no other (A4). Where a call was refused for what
// its commits are together, they wait for their turn again, at most half of them for one
// call: a limit that the server has lowered costs a few calls more, and a commit that is
// refused alone touches no other.
type outbox struct {
	e *Elector

	mu      sync.Mutex
	waiting []turn // in the order in which the leases' writes became ready
	calls   int    // senders
	usual   time.Duration
	longest time.Duration // that a call took of late
}

// A turn is a lease, once, whose next write waits.
type turn struct {
	lease *Lease
	most  int // see pending
}

// overdueAfter is how many times the usual time a call may take before the next call
// does not wait for it any more: the row of one shard may be locked, or a server silent.
const overdueAfter = 4

// ready queues a lease that has commits to send, the first of which is p.
func (o *outbox) ready(l *Lease, p *pending) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.waiting = append(o.waiting, turn{l, p.most})
	o.start()
}

// start adds a sender if there may be one more. o.mu is held.
func (o *outbox) start() {
	if o.calls < max(1, o.e.info.Limits.CommitCalls) {
		o.calls++
		o.e.calls.Go(o.send)
	}
}

// send makes call after call until nothing is waiting.
func (o *outbox) send() {
	for {
		runtime.Gosched() // lets the callers just served queue their next
		batch, commits := o.next()
		if batch == nil || !o.call(batch, commits) {
			return
		}
	}
}

// next makes the writes of the next call, all of one session, and says how many commits
// they have. Without any it ends the sender.
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

// take removes the first lease that waits, of session s unless that is nil, and whose
// commits may go with as many others. If there is none it ends the sender that asks for
// its first.
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

// call sends the writes, and reports whether the sender is to go on: not if it was
// overdue, and another one has its place.
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

// again queues a lease whose write is done, unless it has nothing more to send.
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

// commitCall is one Session.Commit, with a result for each write if the error is nil.
// from are the contexts of its callers, if hooks ask for them.
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

// callers are the contexts of the commits in a call, if a hook asks for them.
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

// learn notes how long a call took that was answered.
func (o *outbox) learn(took time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.usual += (took - o.usual) / 16
	o.longest = max(took, o.longest-o.longest/16)
}

// patience is how long a call may go unanswered before its writes are sent again: half
// a second, or eight times what calls took of late, up to half the TTL, or a second if
// that is more. It is short because a commit that comes twice does no harm, so that one
// that was lost with a server does not keep the shard waiting; it doubles every four
// attempts, for writes that take longer than any before.
func (o *outbox) patience(ttl time.Duration) time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	return min(max(500*time.Millisecond, 8*o.longest), max(ttl/2, time.Second))
}

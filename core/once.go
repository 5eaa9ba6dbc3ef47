package core

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

// A job of RunOnce has a shard and one item in it. The name is reserved, so that a shard
// that nobody owns any more does not count as unowned (View.Unowned).
const (
	oncePrefix = "_once."
	onceKey    = "_result"
)

// RunOnce does a job once for the whole namespace, and returns its result to every caller: in
// the process that ran job, in others that wait for it, and in those that call later, also
// after a restart. Once the job is done a call costs one read, and asks for no lease.
//
// The result is recorded under the lease that job was given. A name has one result, which no
// later call replaces. Job itself runs at least once: if its process dies, or loses the lease,
// before the result is recorded, another caller runs it again from its beginning. So job
// is repeatable, or it commits under its lease, where a former run is refused. For what must
// not be repeated, such as a payment, there is package effect.
//
// A job that returns an error is not done. Another caller that waits runs it at once, and this
// one again after a back-off, as in RunSingleton. Job is given the contexts of a [Handler]: ctx
// ends when it should stop. A caller that waits is a member of the namespace, and reads
// once for each of its heartbeats.
//
// When ctx ends first, the error is as that of RunSingleton. When the result is above
// Limits.WriteBytes, nothing is recorded, this call does not run job again, and the error
// matches ErrTooLarge. An argument that does not fit matches ErrInvalid. If the job is
// done and something could not be given back, the result comes with an error.
//
// Name has up to 122 bytes in the grammar of CheckShard. Its shard, named "_once." and the name,
// stays in the store, some hundred bytes and the result: RunOnce is for few jobs, such as
// one for each version of a schema. A new name does the job anew. Options.Supersede and
// LameDuck are not used.
func RunOnce(
	ctx context.Context, b Backend, name string, job func(ctx context.Context, lease *Lease) ([]byte, error), o *Options,
) ([]byte, error) {
	if job == nil {
		return nil, errNoHandler
	}
	if err := cmp.Or(CheckShard(name), CheckShard(oncePrefix+name)); err != nil {
		return nil, err
	}
	var c Options
	if o != nil {
		c = *o
	}
	c.Supersede = false // two calls in one process would end each other's session
	c.LameDuck = 0
	e, err := NewElector(b, &c)
	if err != nil {
		return nil, err
	}
	run, stop := context.WithCancel(ctx)
	defer stop()
	x := &once{e: e, shard: ShardID(oncePrefix + name), stop: stop}
	if x.read(ctx) {
		return x.out.Load().result, nil
	}
	err = e.Contend(func(ctx context.Context, lease *Lease) error { return x.do(ctx, lease, job) }, string(x.shard))
	if err != nil {
		return nil, err
	}
	var reads sync.WaitGroup
	reads.Go(func() { x.wait(run) })
	err = e.Run(run)
	stop()
	reads.Wait()
	if out := x.out.Load(); out != nil {
		return out.result, errors.Join(out.err, err)
	}
	if p := x.last.Load(); p != nil {
		err = errors.Join(*p, err)
	}
	return nil, errors.Join(context.Cause(ctx), err)
}

// once is a call of RunOnce.
type once struct {
	e     *Elector
	shard ShardID
	stop  context.CancelFunc
	out   atomic.Pointer[onceOutcome] // nil: not done
	last  atomic.Pointer[error]       // that job returned; a stuck one may return after Run
}

type onceOutcome struct {
	result []byte
	err    error // it cannot be recorded
}

// do is the handler.
func (x *once) do(ctx context.Context, lease *Lease, job func(context.Context, *Lease) ([]byte, error)) error {
	item, err := lease.Get(ctx, onceKey) // another member may have had the lease since the last read
	if item != nil {
		x.finish(item.Value, nil)
		return nil
	}
	var result []byte
	if err == nil {
		result, err = job(ctx, lease)
	}
	if err == nil {
		_, err = lease.Commit(lease.Context(), PutIf(onceKey, result, Absent))
		if err == nil || errors.Is(err, ErrTooLarge) {
			x.finish(result, err)
			return err
		}
	}
	if isStop(ctx, err) {
		x.last.Store(nil)
	} else {
		x.last.Store(&err)
	}
	return err
}

// finish ends the call.
func (x *once) finish(result []byte, err error) {
	if err != nil {
		result = nil
	}
	x.out.CompareAndSwap(nil, &onceOutcome{result, err})
	x.stop()
}

// wait reads until the result is there, or ctx ends: a caller that is not granted the lease, as
// one that is not eligible, gets the result all the same.
func (x *once) wait(ctx context.Context) {
	tick := time.NewTicker(x.e.o.Heartbeat)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		if x.read(ctx) {
			return
		}
	}
}

// read looks for the result, without a lease. A read that fails has found none: the next one,
// or that of the handler, tells.
func (x *once) read(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, min(x.e.o.TTL/2, x.e.o.CallTimeout))
	defer cancel()
	ctx, call := x.e.note.startCall(ctx, callGet, 0, x.shard, nil)
	item, err := x.e.b.Get(ctx, x.shard, onceKey)
	call.done(err)
	if err != nil || item == nil {
		return false
	}
	x.finish(item.Value, nil)
	return true
}

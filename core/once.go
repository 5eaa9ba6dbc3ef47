package core

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tenure-go/tenure/internal/goexit"
)

// Each job of RunOnce uses a shard with one item. The shard's name is reserved, so that a shard
// without an owner does not count as unowned (View.Unowned). The item's first byte shows whether
// the rest is the result or the reason of a failure.
const (
	oncePrefix = "_once."
	onceKey    = "_result"
	onceDone   = "+"
	onceFailed = "-"
	maxFailure = 1024 // bytes of a reason
)

// PermanentError is the error that a job of [RunOnce] returns if it would fail in the same way at
// every attempt. No caller runs the job again.
type PermanentError struct {
	Err error
}

func (e *PermanentError) Error() string { return fmt.Sprint(e.Err) }

func (e *PermanentError) Unwrap() error { return e.Err }

// RunOnce does a job once for the whole namespace and returns its result to every caller. Callers
// may be in the process that ran job, in processes that wait for it, or in later processes. Once
// the job is done, a call costs one read and requests no lease.
//
// The result is recorded under the lease that job was given. A name has one result, which no later
// call replaces. The job itself runs at least once. If its process dies or loses the lease before
// the result is recorded, another caller runs job again from its beginning. Therefore, job must be
// repeatable, or commit under its lease, so that the store refuses commits of an earlier run. For
// work that must not be repeated, such as a payment, use package effect.
//
// A job that returns an error is not done. Another waiting caller runs it immediately. This caller
// runs it again after a back-off, as in RunSingleton. Job gets the same contexts as a [Handler]:
// ctx ends when job should stop. If the error matches *PermanentError, the job has failed
// permanently: every caller, now or later, gets a *PermanentError. RunOnce records the first KiB of
// the error's text for them, so the text must not contain credentials. A waiting caller is a member
// of the namespace, and reads once per heartbeat.
//
// If ctx ends first, the error is that of RunSingleton. If the result exceeds Limits.WriteBytes,
// nothing is recorded, this call does not run job again, and the error matches ErrTooLarge. If an
// argument is invalid, the error matches ErrInvalid. If the job is done and something could not
// be given back, RunOnce returns the result and an error.
//
// Name has up to 122 bytes in the grammar of CheckShard. The name of its shard is "_once." followed
// by the name. The shard stays in the store, with about a hundred bytes and the result. RunOnce is
// therefore meant for few jobs, such as one for each version of a schema. To do the job again, use
// a new name. Options.Supersede and LameDuck are ignored.
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
	c.Supersede = false // otherwise, two calls in one process would end each other's sessions
	c.LameDuck = 0
	e, err := NewElector(b, &c)
	if err != nil {
		return nil, err
	}
	run, stop := context.WithCancel(ctx)
	defer stop()
	x := &once{e: e, shard: ShardID(oncePrefix + name), stop: stop}
	if x.read(ctx) {
		out := x.out.Load()
		return out.result, out.err
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
	last  atomic.Pointer[error]       // last error of job; a stuck job may return after Run
}

type onceOutcome struct {
	result []byte
	err    error // the result cannot be recorded, or the job failed
}

// do is the handler of the job's shard.
func (x *once) do(ctx context.Context, lease *Lease, job func(context.Context, *Lease) ([]byte, error)) error {
	item, err := lease.Get(ctx, onceKey) // another member may have had the lease since the last read
	if item != nil {
		x.found(item.Value)
		return nil
	}
	defer func() { keepLast(&x.last, ctx, err) }()
	if err != nil {
		return err
	}
	var result []byte
	failed := goexit.Call(func() error { result, err = job(ctx, lease); return err })
	value := append([]byte(onceDone), result...)
	if _, ok := errors.AsType[*PermanentError](failed); ok {
		value = append([]byte(onceFailed), oneLine(failed.Error(), maxFailure)...)
	} else if err = failed; err != nil {
		return err
	}
	_, err = lease.Commit(lease.Context(), PutIf(onceKey, value, Absent))
	if err == nil {
		err = failed
		x.finish(result, failed)
	} else if errors.Is(err, ErrTooLarge) {
		x.finish(nil, err)
	}
	return err
}

// found ends the call with the recorded value.
func (x *once) found(value []byte) {
	switch text := string(value); {
	case strings.HasPrefix(text, onceDone):
		x.finish(value[1:], nil)
	case strings.HasPrefix(text, onceFailed):
		x.finish(nil, &PermanentError{Err: errors.New(oneLine(text[1:], maxFailure))})
	default:
		x.finish(nil, fmt.Errorf("tenure: shard %q: the item %q is no result: %w: remove it", x.shard, onceKey, ErrDamaged))
	}
}

// finish ends the call.
func (x *once) finish(result []byte, err error) {
	if errors.As(err, new(*PermanentError)) {
		result, err = nil, fmt.Errorf("tenure: the job %q has failed permanently: %w", x.shard[len(oncePrefix):], err)
	}
	x.out.CompareAndSwap(nil, &onceOutcome{result, err})
	x.stop()
}

// wait reads until it finds the result or ctx ends. A caller that is not granted the lease, for
// example because it is not eligible, thus also gets the result.
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

// read looks for the result without a lease. If a read fails, a later read or the handler finds the
// result.
func (x *once) read(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, min(x.e.o.TTL/2, x.e.o.CallTimeout))
	defer cancel()
	ctx, call := x.e.note.startCall(ctx, callGet, 0, x.shard, nil)
	item, err := x.e.b.Get(ctx, x.shard, onceKey)
	call.done(err)
	if err != nil || item == nil {
		return false
	}
	x.found(item.Value)
	return true
}

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

// Each job of RunOnce uses a shard with one item. Because the shard's name is reserved, the shard
// does not count as unowned when it has no owner (View.Unowned). The item's first byte shows
// whether the other bytes are the result or the reason for a failure.
const (
	oncePrefix = "_once."
	onceKey    = "_result"
	onceDone   = "+"
	onceFailed = "-"
	maxFailure = 1024 // maximum size of a reason, in bytes
)

// PermanentError is the error to return from a [RunOnce] job if every further attempt would fail in
// the same way. After this error, no caller runs the job again.
type PermanentError struct {
	Err error
}

func (e *PermanentError) Error() string { return fmt.Sprint(e.Err) }

func (e *PermanentError) Unwrap() error { return e.Err }

// RunOnce runs a job once for the whole namespace and returns the job's result to every caller. The
// callers may be in the process that ran the job, in waiting processes, or in later processes. Once
// the job is done, a call costs one read and requests no lease.
//
// RunOnce records the result under the lease that it passed to the job. A name has one result,
// which later calls do not replace. The job runs at least once. If the process that runs the job
// dies or loses the lease before the result is recorded, another caller runs it again from the
// beginning. The job must therefore be safe to repeat, or must commit under its lease, because the
// store refuses the commits of an earlier run. For work that must not be repeated, such as a
// payment, use package effect.
//
// If the job returns an error, the name has no result yet. Another waiting caller runs its job
// immediately, and this caller runs its own again after a back-off, as in RunSingleton. Like a
// [Handler], the job gets a ctx that ends when it should stop. If the error matches
// *PermanentError, the job has failed permanently, and every present and later caller gets a
// *PermanentError. RunOnce stores the first KiB of the error's text, so the text must not contain
// credentials. While waiting, a caller is a member of the namespace and reads the store once per
// heartbeat.
//
// If ctx ends first, RunOnce returns the same error as RunSingleton. If the result exceeds
// Limits.WriteBytes, the error matches ErrTooLarge. This call then records nothing and does not run
// the job again. If an argument is invalid, the error matches ErrInvalid. If the job is done but
// the lease or the session could not be given up, RunOnce returns both the result and an error.
//
// The name must satisfy CheckShard and may have at most 122 bytes. The job's shard is named
// "_once." followed by the name. The shard stays in the store, where it takes up about a hundred
// bytes in addition to the result. RunOnce is therefore meant for a small number of jobs, such as
// one for each schema version. To run the job again, use a new name. RunOnce ignores
// Options.Supersede and LameDuck.
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
	c.Supersede = false // two calls in one process would end each other's sessions
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

type once struct {
	e     *Elector
	shard ShardID
	stop  context.CancelFunc
	out   atomic.Pointer[onceOutcome] // nil until job is done
	last  atomic.Pointer[error]       // last error of job; a stuck job may return after Run has returned
}

type onceOutcome struct {
	result []byte
	err    error // why the result cannot be recorded, or why the job failed
}

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

func (x *once) finish(result []byte, err error) {
	if errors.As(err, new(*PermanentError)) {
		result, err = nil, fmt.Errorf("tenure: the job %q has failed permanently: %w", x.shard[len(oncePrefix):], err)
	}
	x.out.CompareAndSwap(nil, &onceOutcome{result, err})
	x.stop()
}

// wait reads the item until it finds the result or ctx ends. A caller that is never granted the
// lease, for example because it is not eligible, therefore also gets the result.
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

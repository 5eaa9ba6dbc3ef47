package lock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/core/driver"
)

// MaxName bounds the name of a lock, in bytes.
const MaxName = driver.MaxNameLen - len(driver.LockPrefix)

// ErrHeld is the error of TryLock while somebody else holds the lock. That of a Lock whose
// context ended meanwhile matches it as well.
var ErrHeld = errors.New("the lock is held")

// How long a process takes a lock again and again before it leaves it to others once, and for
// how long, at least. The latter is RankDelay's default where the store pushes changes.
const (
	turn  = 100 * time.Millisecond
	pause = 20 * time.Millisecond
)

// Locks takes locks for one member. All methods are safe for concurrent use.
type Locks struct {
	e    *core.Elector
	stop context.CancelFunc // of New
	ran  chan error         // with Run's error

	mu    sync.Mutex
	names map[string]*name
	used  map[string]streak // of names that were unlocked here not long ago; at most maxUsed
	pause time.Duration
}

// maxUsed bounds the names of which it is remembered for how long they were locked here.
const maxUsed = 1024

// streak is for how long this process has taken a lock again and again.
type streak struct{ since, last time.Time }

// name is a lock that somebody here holds or wants.
type name struct {
	waiting []*waiter
	holder  *Lock
	wanted  bool // the elector contends for it, or somebody is about to have it do so
}

// waiter is a call that waits for a lock.
type waiter struct {
	granted chan *Lock    // has room for one
	turn    chan struct{} // has room for one: this call is to contend
}

// Open makes Locks of an Elector, which joins with the first call that locks, and has to run
// meanwhile. It may serve shards of its own besides.
func Open(e *core.Elector) *Locks {
	return &Locks{e: e, names: make(map[string]*name), used: make(map[string]streak), pause: pause}
}

// New is Open with an Elector of its own, which runs until Close. A nil o is the zero Options.
// b stays the caller's to close, after Close.
func New(b core.Backend, o *core.Options) (*Locks, error) {
	e, err := core.NewElector(b, o)
	if err != nil {
		return nil, err
	}
	l := Open(e)
	ctx, stop := context.WithCancel(context.Background())
	l.stop, l.ran = stop, make(chan error, 1)
	go func() { l.ran <- e.Run(ctx) }()
	return l, nil
}

// Close ends what New began: the locks that are still held are given back once they are
// unlocked, which it waits for up to Options.DrainBudget. The error is Run's. After Open, and
// when it is called again, it does nothing.
func (l *Locks) Close() error {
	if l.stop == nil {
		return nil
	}
	l.stop()
	err := <-l.ran
	l.ran <- nil
	return err
}

// Lock is a lock that is held, with the lease under which it is: its fence and token go with
// every write that matters, and its context ends when the lock may have been lost. All methods
// are safe for concurrent use.
type Lock struct {
	*core.Lease
	l    *Locks
	name string
	done chan struct{} // closed by Unlock
	once sync.Once
}

// Name is the lock's name, as it was given to Lock.
func (k *Lock) Name() string { return k.name }

// Lock waits until this member holds the lock, and the calls of this process that asked
// before have had it. Waiting costs the store nothing but the views that each member has. A
// caller that holds the lock already waits for itself.
//
// A name has letters, digits, ".", "_" and "-", at most MaxName bytes. Another one matches
// core.ErrInvalid, before anything is sent. Otherwise the error is ctx's cause, and matches
// ErrHeld if somebody is known to hold the lock; or it matches core.ErrStopped after the end of the
// Elector's Run. The lock lasts until Unlock, unless the lease is lost: see core.Lease.Err.
func (l *Locks) Lock(ctx context.Context, name string) (*Lock, error) {
	return l.lock(ctx, name, false)
}

// TryLock is Lock, but does not wait for others: if one is known to hold the lock, here or
// elsewhere, or waits for it here, the error matches ErrHeld. A lock that was unlocked elsewhere a
// moment ago may still count as held. Otherwise it asks the store, once, and longer only while that
// does not answer.
func (l *Locks) TryLock(ctx context.Context, name string) (*Lock, error) {
	return l.lock(ctx, name, true)
}

func (l *Locks) lock(ctx context.Context, called string, try bool) (*Lock, error) {
	shard := driver.LockPrefix + called
	if called == "" { // what else a name may not be the Elector refuses
		return nil, fmt.Errorf("tenure: %w: the lock's name is empty", core.ErrInvalid)
	}
	if err := ctx.Err(); err != nil {
		return nil, l.waited(called, context.Cause(ctx))
	}
	w := &waiter{granted: make(chan *Lock, 1), turn: make(chan struct{}, 1)}
	if !l.enter(called, w, try) {
		return nil, held(called)
	}
	for {
		select {
		case k := <-w.granted:
			return k, nil
		case <-w.turn:
			if err := l.contend(ctx, called, shard); err != nil {
				return l.leave(ctx, called, shard, w, true, err)
			}
			if !try {
				continue
			}
			if mine, err := l.e.WaitOwner(ctx, shard); err != nil {
				return l.leave(ctx, called, shard, w, false, l.waited(called, err))
			} else if !mine {
				return l.leave(ctx, called, shard, w, false, held(called))
			}
		case <-l.e.Done():
			return l.leave(ctx, called, shard, w, false, l.waited(called, core.ErrStopped))
		case <-ctx.Done():
			return l.leave(ctx, called, shard, w, false, l.waited(called, context.Cause(ctx)))
		}
	}
}

// enter puts a call in the queue of a name; false if it is not to wait, and would.
func (l *Locks) enter(called string, w *waiter, try bool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := l.names[called]
	if n == nil {
		n = new(name)
		l.names[called] = n
	} else if try {
		return false
	}
	n.waiting = append(n.waiting, w)
	l.next(n)
	return true
}

// next has the first that waits contend, unless the lock is held or contended for. l.mu is held.
func (l *Locks) next(n *name) {
	if !n.wanted && len(n.waiting) > 0 {
		n.wanted = true
		n.waiting[0].turn <- struct{}{}
	}
}

// contend asks for the lock, after a pause if this process has had it all the time of late.
func (l *Locks) contend(ctx context.Context, called, shard string) error {
	l.mu.Lock()
	s, now := l.used[called], time.Now()
	wait := l.pause
	switch {
	case now.Sub(s.last) >= wait:
		s.since = now
		wait = 0
	case now.Sub(s.since) < turn:
		wait = 0
	default:
		s.since = now.Add(wait)
	}
	s.last = now
	if len(l.used) >= maxUsed {
		clear(l.used)
	}
	l.used[called] = s
	l.mu.Unlock()
	if wait > 0 && len(l.e.Heartbeats()) > 0 { // somebody else may wait
		t := time.NewTimer(wait)
		defer t.Stop()
		select {
		case <-t.C:
		case <-ctx.Done():
			return l.waited(called, context.Cause(ctx))
		}
	}
	return l.e.Contend(func(ctx context.Context, lease *core.Lease) error { return l.serve(ctx, called, lease) }, shard)
}

// leave takes a call out of the queue that will not have the lock. With turn it was to contend,
// and did not.
func (l *Locks) leave(ctx context.Context, called, shard string, w *waiter, turn bool, cause error) (*Lock, error) {
	l.mu.Lock()
	n := l.names[called]
	n.waiting = slices.DeleteFunc(n.waiting, func(x *waiter) bool { return x == w })
	select {
	case k := <-w.granted: // in the same moment
		l.mu.Unlock()
		return nil, errors.Join(cause, k.Unlock(context.WithoutCancel(ctx)))
	default:
	}
	if turn = turn || len(w.turn) > 0; turn || n.holder == nil && n.wanted && len(n.waiting) == 0 {
		if !turn {
			l.mu.Unlock()
			l.withdraw(shard)
			l.mu.Lock()
		}
		n.wanted = false
		l.next(n)
	}
	l.forget(called, n)
	l.mu.Unlock()
	return nil, cause
}

// withdraw ends the contention and does not wait.
func (l *Locks) withdraw(shard string) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = l.e.Withdraw(ctx, shard) // that it is not given back yet
}

// forget removes a name that nobody here holds or wants. l.mu is held.
func (l *Locks) forget(called string, n *name) {
	if n.holder == nil && !n.wanted && len(n.waiting) == 0 {
		delete(l.names, called)
	}
}

// serve is the handler of a lock's lease: it gives the lock to the first that waits, and
// returns once that one has unlocked it.
func (l *Locks) serve(ctx context.Context, called string, lease *core.Lease) error {
	l.mu.Lock()
	n := l.names[called]
	var k *Lock
	if n != nil && n.holder == nil && len(n.waiting) > 0 && lease.Err() == nil && ctx.Err() == nil {
		k = &Lock{Lease: lease, l: l, name: called, done: make(chan struct{})}
		n.holder = k
		n.waiting[0].granted <- k
		n.waiting = n.waiting[1:]
	}
	l.mu.Unlock()
	<-ctx.Done()
	if k != nil {
		<-k.done
	}
	return nil
}

// Unlock gives the lock back and waits until the store has it; ctx bounds the wait only. It
// is called once the work under the lock has ended, also where the lock was lost: no other call
// of this process has the lock before.
//
// The error matches core.ErrLost if the lock was lost before: somebody else may have had it
// meanwhile. Else it is ctx's. A second call does nothing.
func (k *Lock) Unlock(ctx context.Context) error {
	var err error
	k.once.Do(func() {
		if lost := k.Err(); lost != nil {
			err = fmt.Errorf("tenure: lock %q: %w", k.name, lost)
		}
		l, shard := k.l, driver.LockPrefix+k.name
		close(k.done)
		if failed := l.e.Withdraw(ctx, shard); failed != nil && err == nil {
			err = fmt.Errorf("tenure: lock %q: %w", k.name, failed)
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		n := l.names[k.name]
		n.holder, n.wanted = nil, false
		s := l.used[k.name]
		s.last = time.Now()
		l.used[k.name] = s
		l.pause = max(pause, 2*k.Limits().PollPeriod)
		l.next(n)
		l.forget(k.name, n)
	})
	return err
}

func held(called string) error { return fmt.Errorf("tenure: lock %q: %w", called, ErrHeld) }

// waited is the error of a call that was not granted the lock, and says what it waited for.
func (l *Locks) waited(called string, err error) error {
	now, cancel := context.WithCancel(context.Background())
	cancel()
	_, unknown := l.e.WaitOwner(now, driver.LockPrefix+called)
	switch {
	case errors.Is(err, core.ErrStopped):
		return fmt.Errorf("tenure: lock %q: %w", called, err)
	case unknown != nil:
		return fmt.Errorf("tenure: lock %q: nobody is known to hold it, and the store has not granted it: %w", called, err)
	}
	return fmt.Errorf("tenure: lock %q: %w: %w", called, ErrHeld, err)
}

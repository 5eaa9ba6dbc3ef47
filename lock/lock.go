package lock

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/errtext"
	"github.com/tenure-go/tenure/internal/seam"
)

// MaxName is the longest name of a lock, in bytes.
const MaxName = driver.MaxNameLen - len(driver.LockPrefix)

// ErrHeld is the error of TryLock while another caller holds the lock. If the context of Lock ends
// while another caller holds the lock, Lock's error also matches ErrHeld.
var ErrHeld error = errtext.NotApplied("the lock is held")

// A process that has taken a lock almost continuously for turn leaves it to others once, for at
// least pause. On a polled store, it pauses for at least two poll periods.
const (
	turn  = 100 * time.Millisecond
	pause = 20 * time.Millisecond
)

// Locks takes locks for one member. All methods are safe for concurrent use.
type Locks struct {
	e    *core.Elector
	stop context.CancelFunc // set by New
	log  *slog.Logger       // set by New; nil: slog.Default
	ran  chan error         // with Run's error

	mu    sync.Mutex
	names map[string]*name
	used  map[string]streak // names that were unlocked here recently; at most maxUsed
	pause time.Duration
}

// maxNamed is the largest number of locks that a log line names.
const maxNamed = 5

// maxUsed is the largest number of names in Locks.used.
const maxUsed = 1024

// streak is the period during which this process has taken a lock almost continuously.
type streak struct{ since, last time.Time }

// name is a lock that a caller in this process holds or wants.
type name struct {
	waiting []*waiter
	holder  *Lock
	wanted  bool // the elector contends for it, or a caller is about to contend
}

// waiter is a call that waits for a lock.
type waiter struct {
	granted chan *Lock    // has room for one
	turn    chan struct{} // has room for one: this call must contend
}

// Open returns Locks that use an Elector, which joins at the first call that locks. The Elector
// must run while the Locks are used, and may also serve shards.
func Open(e *core.Elector) *Locks {
	return &Locks{e: e, names: make(map[string]*name), used: make(map[string]streak), pause: pause}
}

// New returns Locks with their own Elector, which runs until Close. A nil o means the zero Options.
// The caller closes b after Close.
func New(b core.Backend, o *core.Options) (*Locks, error) {
	e, err := core.NewElector(b, o)
	if err != nil {
		return nil, err
	}
	l := Open(e)
	ctx, stop := context.WithCancel(context.Background())
	l.stop, l.ran = stop, make(chan error, 1)
	if o != nil {
		l.log = o.Logger
	}
	go func() { l.ran <- e.Run(ctx) }()
	return l, nil
}

// Close ends the Elector that New began. It logs the names of held locks, and waits up to
// Options.DrainBudget until they are unlocked and given back. If they are not unlocked in time, the
// error names one of them. Close returns Run's error. After Open, and on a second call, Close does
// nothing.
func (l *Locks) Close() error {
	if l.stop == nil {
		return nil
	}
	if names := l.held(); len(names) > 0 {
		log := l.log
		if log == nil {
			log = slog.Default()
		}
		log.Info("tenure: closing waits until locks are unlocked", slog.Int("count", len(names)),
			slog.Any("locks", names[:min(len(names), maxNamed)]))
	}
	l.stop()
	err := <-l.ran
	l.ran <- nil
	if names := l.held(); errors.Is(err, core.ErrStuck) && len(names) > 0 {
		err = fmt.Errorf("tenure: lock %q, of %d, was not unlocked in time: unlock before Close, or raise DrainBudget: %w", names[0],
			len(names), err)
	}
	return err
}

// held returns the sorted names of the locks that are held here.
func (l *Locks) held() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var names []string
	for called, n := range l.names {
		if n.holder != nil {
			names = append(names, called)
		}
	}
	slices.Sort(names)
	return names
}

// Do takes one lock for one call of fn, with its own Locks. Each call costs a session in the store,
// so a process that takes many locks should use Locks.Do. The errors are those of New, Locks.Do and
// Close.
func Do(ctx context.Context, b core.Backend, name string, fn func(context.Context, *Lock) error) (err error) {
	l, err := New(b, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	return l.Do(ctx, name, fn)
}

// Do locks a name, calls fn, and unlocks the name when fn has returned, has panicked, or has ended
// its goroutine. fn's context ends with ctx, or when the lock may have been lost. The error is that
// of Lock, or the errors of fn and Unlock, joined: it matches core.ErrLost if the lock was lost
// while fn ran.
func (l *Locks) Do(ctx context.Context, name string, fn func(context.Context, *Lock) error) (err error) {
	k, err := l.Lock(ctx, name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, k.Unlock(ctx)) }()
	held, end := context.WithCancelCause(ctx)
	defer end(nil)
	lease := k.Context()
	defer context.AfterFunc(lease, func() { end(context.Cause(lease)) })()
	return fn(held, k)
}

// Name returns the name of a lock for any string, and a different name for each string. A legal
// name that does not begin with "_" stays as it is. The name for any other string is "_h.", the
// first 80 bytes with "-" for each illegal byte, and 128 bits of the string's SHA-256.
func Name(s string) string {
	if s != "" && s[0] != '_' && driver.CheckShard(driver.ShardID(driver.LockPrefix+s)) == nil {
		return s
	}
	begin := []byte(s[:min(len(s), 80)])
	for i, c := range begin {
		if driver.CheckShard(driver.ShardID([]byte{'x', c})) != nil {
			begin[i] = '-'
		}
	}
	sum := sha256.Sum256([]byte(s))
	return fmt.Sprintf("_h.%s.%x", begin, sum[:16])
}

// Lock is a held lock with its lease. Pass its fence or token with every write that matters. Its
// context ends when the lock may have been lost. All methods are safe for concurrent use.
type Lock struct {
	*core.Lease
	l    *Locks
	name string
	done chan struct{} // closed by Unlock
	once sync.Once
}

// Name returns the lock's name, as it was given to Locks.Lock.
func (k *Lock) Name() string { return k.name }

// Lock waits until this member holds the lock and it is this call's turn. Calls in one process get
// the lock in order. Waiting costs the store only the views that each member reads. A caller that
// locks a name that it already holds waits for itself.
//
// A name consists of letters, digits, ".", "_" and "-", at most MaxName bytes. [Name] converts any
// string to such a name. For an invalid name, the error matches core.ErrInvalid, and nothing is
// sent. If ctx ends, the error is its cause, and matches ErrHeld if another caller is known to hold
// the lock. After the end of the Elector's Run, the error matches core.ErrStopped. The lock lasts
// until Unlock, unless the lease is lost: see core.Lease.Err.
func (l *Locks) Lock(ctx context.Context, name string) (*Lock, error) {
	return l.lock(ctx, name, false)
}

// TryLock is like Lock, but does not wait for other callers. If another caller is known to hold the
// lock, or waits for it in this process, the error matches ErrHeld. A lock that was unlocked
// elsewhere a moment ago may still count as held. Otherwise, TryLock asks the store once, and waits
// for its answer.
func (l *Locks) TryLock(ctx context.Context, name string) (*Lock, error) {
	return l.lock(ctx, name, true)
}

func (l *Locks) lock(ctx context.Context, called string, try bool) (*Lock, error) {
	shard := driver.LockPrefix + called
	if called == "" { // the Elector refuses all other invalid names
		return nil, fmt.Errorf("tenure: %w: the lock's name is empty", core.ErrInvalid)
	}
	if err := ctx.Err(); err != nil {
		return nil, l.waited(called, context.Cause(ctx))
	}
	w := &waiter{granted: make(chan *Lock, 1), turn: make(chan struct{}, 1)}
	if !l.enter(called, w, try) {
		return nil, isHeld(called)
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
			if mine, err := l.e.Internal(seam.Key{}).WaitOwner(ctx, shard); err != nil {
				return l.leave(ctx, called, shard, w, false, l.waited(called, err))
			} else if !mine {
				return l.leave(ctx, called, shard, w, false, isHeld(called))
			}
		case <-l.e.Done():
			return l.leave(ctx, called, shard, w, false, l.waited(called, core.ErrStopped))
		case <-ctx.Done():
			return l.leave(ctx, called, shard, w, false, l.waited(called, context.Cause(ctx)))
		}
	}
}

// enter puts a call in a name's queue. If try is set and the call would have to wait, enter returns
// false.
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

// next makes the first waiter contend if the lock is neither held nor contended for. The caller
// holds l.mu.
func (l *Locks) next(n *name) {
	if !n.wanted && len(n.waiting) > 0 {
		n.wanted = true
		n.waiting[0].turn <- struct{}{}
	}
}

// contend contends for the lock. If this process has recently held it almost continuously, it
// pauses first.
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
	if wait > 0 && len(l.e.Heartbeats()) > 0 { // another member may wait
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

// leave removes from the queue a call that will not get the lock. turn means that the call did not
// use its turn to contend.
func (l *Locks) leave(ctx context.Context, called, shard string, w *waiter, turn bool, cause error) (*Lock, error) {
	l.mu.Lock()
	n := l.names[called]
	n.waiting = slices.DeleteFunc(n.waiting, func(x *waiter) bool { return x == w })
	select {
	case k := <-w.granted: // it was granted at the same moment
		l.mu.Unlock()
		_ = k.Unlock(over(ctx)) // the release reaches the store later
		return nil, cause
	default:
	}
	if turn = turn || len(w.turn) > 0; turn || n.holder == nil && n.wanted && len(n.waiting) == 0 {
		if !turn {
			// l.mu is held, so no caller is granted the lock that this call takes back. A release
			// that has not been sent yet is not an error.
			_ = l.e.Withdraw(over(ctx), shard)
		}
		n.wanted = false
		l.next(n)
	}
	l.forget(called, n)
	l.mu.Unlock()
	return nil, cause
}

// over returns a child of ctx that has already ended, so that calls with it do not wait.
func over(ctx context.Context) context.Context {
	ctx, cancel := context.WithCancel(ctx)
	cancel()
	return ctx
}

// forget removes a name that no caller here holds or wants. The caller holds l.mu.
func (l *Locks) forget(called string, n *name) {
	if n.holder == nil && !n.wanted && len(n.waiting) == 0 {
		delete(l.names, called)
	}
}

// serve is the handler of a lock's lease. It gives the lock to the first waiter, and returns once
// that waiter has unlocked it.
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

// Unlock gives the lock back and waits until the store has it; ctx limits the wait only. Call it
// once the work under the lock has ended, even if the lock was lost. Until then, no other call in
// this process gets the lock.
//
// If the lock was lost earlier, the error matches core.ErrLost: another process may have held it
// since. Otherwise, the error is ctx's. A second call does nothing.
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

func isHeld(called string) error { return fmt.Errorf("tenure: lock %q: %w", called, ErrHeld) }

// waited returns the error of a call that was not granted the lock.
func (l *Locks) waited(called string, err error) error {
	_, unknown := l.e.Internal(seam.Key{}).WaitOwner(over(context.Background()), driver.LockPrefix+called)
	switch {
	case errors.Is(err, core.ErrStopped):
		return fmt.Errorf("tenure: lock %q: %w", called, err)
	case unknown != nil:
		return fmt.Errorf("tenure: lock %q: nobody is known to hold it, and the store has not granted it: %w", called, err)
	}
	return fmt.Errorf("tenure: lock %q: %w: %w", called, ErrHeld, err)
}

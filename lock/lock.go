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

// MaxName is the maximum length of a lock's name, in bytes.
const MaxName = driver.MaxNameLen - len(driver.LockPrefix)

// ErrHeld is the error that TryLock returns while another caller holds the lock. The error of Lock
// also matches ErrHeld if its context ends while another caller holds the lock.
var ErrHeld error = errtext.NotApplied("the lock is held")

// After a process has held a lock almost continuously for the duration turn, it pauses once for at
// least the duration pause, so that other processes can take the lock. On a polled store, this
// pause lasts at least two poll periods.
const (
	turn  = 100 * time.Millisecond
	pause = 20 * time.Millisecond
)

// Locks acquires locks for one member. All methods of Locks are safe for concurrent use.
type Locks struct {
	e    *core.Elector
	stop context.CancelFunc // set by New
	log  *slog.Logger       // set by New; nil for slog.Default
	ran  chan error         // receives the error of Run

	mu    sync.Mutex
	names map[string]*name
	used  map[string]streak // names that this process recently unlocked; at most maxUsed
	pause time.Duration
}

// maxNamed is the maximum number of locks in one log line.
const maxNamed = 5

const maxUsed = 1024

// streak is a period during which this process has held a lock almost continuously.
type streak struct{ since, last time.Time }

// name is the state of a lock that a caller in this process holds or wants.
type name struct {
	waiting []*waiter
	holder  *Lock
	wanted  bool // the Elector contends for the lock, or a caller is about to contend for it
}

type waiter struct {
	granted chan *Lock    // buffered for one lock
	turn    chan struct{} // buffered for one value; a value means that this call must contend
}

// Open returns Locks that use the Elector e. The first call that requests a lock makes e join the
// namespace. The Elector must be running while the Locks are in use, and may also serve shards.
func Open(e *core.Elector) *Locks {
	return &Locks{e: e, names: make(map[string]*name), used: make(map[string]streak), pause: pause}
}

// New returns Locks with a separate Elector, which runs until Close. If o is nil, New uses the zero
// Options. The caller closes b after Close has returned.
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

// Close ends the Elector that New started. Close logs the names of held locks, and waits up to
// Options.DrainBudget for these locks to be unlocked and released. If a lock is not unlocked within
// that time, the error identifies one such lock. If all locks are unlocked, Close returns the error
// from the Elector's Run. Close does nothing for Locks that Open returned. A second call to Close
// also does nothing.
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

// Do holds one lock for one call to fn, using Locks that Do creates and closes. Each call costs a
// session in the store, so a process that needs many locks should use Locks.Do. Do returns the
// errors from New, Locks.Do and Close.
func Do(ctx context.Context, b core.Backend, name string, fn func(context.Context, *Lock) error) (err error) {
	l, err := New(b, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	return l.Do(ctx, name, fn)
}

// Do locks a name, calls fn, and unlocks the name when fn has returned, panicked or ended its
// goroutine. The context passed to fn ends when ctx ends, or when the lock may have been lost. If
// Lock fails, Do returns Lock's error. If Lock succeeds, Do joins the errors of fn and Unlock. If
// the lock was lost while fn ran, the error matches core.ErrLost.
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

// Name converts any string to a lock's name. Different strings get different names. A legal name
// that does not begin with "_" stays unchanged. The name of any other string consists of "_h.", the
// string's first 80 bytes with "-" for each illegal byte, and 128 bits of the string's SHA-256
// hash.
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

// Lock is a held lock. Pass a Lock's fence or token with every write that the Lock must protect. A
// Lock's context ends when the lock may have been lost. All methods are safe for concurrent use.
type Lock struct {
	*core.Lease
	l    *Locks
	name string
	done chan struct{} // closed by Unlock
	once sync.Once
}

// Name returns the name that was passed to Locks.Lock.
func (k *Lock) Name() string { return k.name }

// Lock waits until this member holds the lock and this call has its turn. Calls in one process get
// the lock in the order in which they were made. A waiting call adds no load on the store beyond
// the views that each member reads anyway. If a caller locks a name again without first unlocking
// it, the call deadlocks.
//
// A name consists of up to MaxName letters, digits, ".", "_" and "-". [Name] converts any string to
// such a name. If the name is invalid, the error matches core.ErrInvalid, and nothing is sent. If
// ctx ends, the error is ctx's cause. If another caller is known to hold the lock, the error also
// matches ErrHeld. After the Elector's Run has ended, the error matches core.ErrStopped. The lock
// lasts until Unlock, unless the lease is lost (see core.Lease.Err).
func (l *Locks) Lock(ctx context.Context, name string) (*Lock, error) {
	return l.lock(ctx, name, false)
}

// TryLock is like Lock, but does not wait for other callers. If another caller is known to hold the
// lock, or is waiting for the lock in this process, the error matches ErrHeld. A lock that another
// process has just unlocked may still count as held. If no other caller is known, TryLock requests
// the lock from the store once, and waits for the answer.
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
		case <-l.e.Internal(seam.Key{}).Done():
			return l.leave(ctx, called, shard, w, false, l.waited(called, core.ErrStopped))
		case <-ctx.Done():
			return l.leave(ctx, called, shard, w, false, l.waited(called, context.Cause(ctx)))
		}
	}
}

// If try is set and the call would have to wait, enter returns false.
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

// If this process neither holds the lock nor contends for it, next makes the first waiter contend.
// The caller holds l.mu.
func (l *Locks) next(n *name) {
	if !n.wanted && len(n.waiting) > 0 {
		n.wanted = true
		n.waiting[0].turn <- struct{}{}
	}
}

// If this process has recently held the lock almost continuously, contend pauses first.
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
	if wait > 0 && len(l.e.Heartbeats()) > 0 { // another member may be waiting
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

// If the call had its turn to contend but has not contended, turn is true.
func (l *Locks) leave(ctx context.Context, called, shard string, w *waiter, turn bool, cause error) (*Lock, error) {
	l.mu.Lock()
	n := l.names[called]
	n.waiting = slices.DeleteFunc(n.waiting, func(x *waiter) bool { return x == w })
	select {
	case k := <-w.granted: // the lock was granted just as the call ended
		l.mu.Unlock()
		_ = k.Unlock(over(ctx)) // the release reaches the store later
		return nil, cause
	default:
	}
	if turn = turn || len(w.turn) > 0; turn || n.holder == nil && n.wanted && len(n.waiting) == 0 {
		if !turn {
			// l.mu is held, so no caller is granted the lock during the withdrawal. An unsent
			// release is not an error.
			_ = l.e.Withdraw(over(ctx), shard)
		}
		n.wanted = false
		l.next(n)
	}
	l.forget(called, n)
	l.mu.Unlock()
	return nil, cause
}

// over returns a child of ctx that has already ended, so that calls do not wait.
func over(ctx context.Context) context.Context {
	ctx, cancel := context.WithCancel(ctx)
	cancel()
	return ctx
}

// forget removes a name that no caller in this process holds or wants. The caller holds l.mu.
func (l *Locks) forget(called string, n *name) {
	if n.holder == nil && !n.wanted && len(n.waiting) == 0 {
		delete(l.names, called)
	}
}

// The lease's handler, serve, passes the lock to the first waiter, and returns once that waiter has
// unlocked the lock.
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

// Unlock releases the lock and waits for the store to confirm the release. The context limits only
// this wait. Call Unlock once the work under the lock has ended, even if the lock was lost. Until
// Unlock is called, no other call in this process gets the lock.
//
// If the lock was lost earlier, the error matches core.ErrLost, and another process may have held
// the lock since. Any other error is ctx's error. A second call to Unlock does nothing.
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

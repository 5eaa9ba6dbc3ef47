package examplebackend

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tenure-go/tenure/backends/kv"
	"github.com/tenure-go/tenure/core/driver"
)

const (
	// A lock that is taken is tried again after lockStep at first and maxLockStep
	// in the end.
	lockStep    = 100 * time.Microsecond
	maxLockStep = time.Millisecond
	// rest is how long a process that has written leaves the lock to the others,
	// its own heartbeats among them (rule E4): flock keeps no queue.
	rest = 500 * time.Microsecond
)

// errClosed ends blocked calls. It is outside the closed set of rule E1.
var errClosed = errors.New("tenure: the store was closed")

// client is one process's access to a directory: a kv.Store.
type client struct {
	dir     string
	poll    time.Duration
	writing chan struct{} // held by the one write that is under way, heartbeats aside
	closed  chan struct{}
	calls   sync.WaitGroup

	mu      sync.Mutex // never held while waiting for the lock file or the disk to sync
	ended   bool
	journal journal
	changed chan struct{} // closed by the next change
	looked  time.Time     // when the journal's length was last looked at
	rested  time.Time     // until when others may have the lock

	reads, writes atomic.Int64 // of the file; for tests of the cost of calls
}

var _ kv.Store = (*client)(nil)

// begin refuses calls after Close, which waits for those that began before.
func (c *client) begin() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return fmt.Errorf("tenure: %w: the store was closed", driver.ErrClosed)
	}
	c.calls.Add(1)
	return nil
}

// Close is of kv.Store.
func (c *client) Close() error {
	c.mu.Lock()
	c.ended = true
	c.mu.Unlock()
	close(c.closed)
	c.calls.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.journal.load(nil, nil)
}

// Apply is of kv.Store.
func (c *client) Apply(ctx context.Context, b *kv.Batch) (*kv.Outcome, error) {
	if err := c.begin(); err != nil {
		return nil, err
	}
	defer c.calls.Done()
	if !b.Heartbeat {
		select {
		case c.writing <- struct{}{}:
			defer func() { <-c.writing }()
		case <-ctx.Done():
			return nil, notSent(ctx.Err())
		case <-c.closed:
			return nil, errClosed
		}
	}
	unlock, err := c.lock(ctx, true, !b.Heartbeat)
	if err != nil {
		return nil, err
	}
	defer unlock()
	c.writes.Add(1)
	return c.apply(b)
}

// apply runs a batch under the exclusive lock. From here on it is not given up:
// the file must not be left in between.
func (c *client) apply(b *kv.Batch) (*kv.Outcome, error) {
	c.mu.Lock()
	err := c.refresh()
	if err == nil {
		err = c.journal.compact(false)
	}
	if err != nil {
		c.mu.Unlock()
		return nil, notSent(err)
	}
	t := &c.journal.table
	if !t.holds(b.Guard) {
		defer c.mu.Unlock()
		keys := make([]string, len(b.Guard))
		for i, g := range b.Guard {
			keys[i] = g.Key
		}
		return &kv.Outcome{Rev: t.rev, Refused: true, Guard: t.read(keys)}, nil
	}
	l, results := t.plan(b)
	c.mu.Unlock()

	var text []byte
	if len(l.Set) > 0 {
		if text, err = encodeLine(l); err != nil {
			return nil, notSent(err)
		}
		// Only the holder of the exclusive lock touches the journal now, so the
		// mutex is free for readers, which find the table out of date and wait for
		// the lock.
		if err := c.journal.append(text); err != nil {
			return nil, err
		}
	}

	c.mu.Lock()
	defer c.mu.Unlock()
	if text != nil {
		t.apply(l)
		c.journal.end += int64(len(text))
		c.wake()
	}
	for i := range results {
		r := &results[i]
		if !r.OK {
			r.Reads = t.read(b.Txns[i].Else)
			continue
		}
		r.Rev = t.rev
		r.Reads = t.read(b.Txns[i].Then)
	}
	return &kv.Outcome{Rev: t.rev, Results: results}, nil
}

// Get is of kv.Store.
func (c *client) Get(ctx context.Context, keys ...string) (*kv.Page, error) {
	var page *kv.Page
	err := c.read(ctx, func(t *table) { page = &kv.Page{Rev: t.rev, Pairs: t.read(keys)} })
	return page, err
}

// Range is of kv.Store.
func (c *client) Range(ctx context.Context, q kv.Range) (*kv.Page, error) {
	var page *kv.Page
	err := c.read(ctx, func(t *table) { page = t.scan(q) })
	return page, err
}

// read calls f with a table that has every write acknowledged before.
func (c *client) read(ctx context.Context, f func(*table)) error {
	if err := c.begin(); err != nil {
		return err
	}
	defer c.calls.Done()
	if err := c.catchUp(ctx); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	f(&c.journal.table)
	return nil
}

// Watch is of kv.Store.
func (c *client) Watch(ctx context.Context, prefixes []string, after kv.Rev, fn func(kv.Rev, []kv.Change) error) error {
	if err := c.begin(); err != nil {
		return err
	}
	defer c.calls.Done()
	if err := c.catchUp(ctx); err != nil {
		return err
	}
	c.mu.Lock()
	loads := c.journal.loads
	c.mu.Unlock()
	tick := time.NewTicker(c.poll)
	defer tick.Stop()
	for {
		c.mu.Lock()
		rev, changed := c.journal.table.rev, c.changed
		changes, known := c.journal.table.since(after, prefixes)
		known = known && loads == c.journal.loads
		c.mu.Unlock()
		if !known {
			return kv.ErrCompacted
		}
		if rev > after {
			if err := fn(rev, changes); err != nil {
				return err
			}
			after = rev
		}
		select {
		case <-changed:
		case <-tick.C:
			if err := c.look(ctx); err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		case <-c.closed:
			return errClosed
		}
	}
}

// look catches up unless another watch has just done so: all watches of a process
// cost one look per poll period (rule O3).
func (c *client) look(ctx context.Context) error {
	c.mu.Lock()
	due := time.Since(c.looked) >= c.poll*9/10
	c.mu.Unlock()
	if !due {
		return nil
	}
	return c.catchUp(ctx)
}

// catchUp reads appended lines, under the shared lock if there are any.
func (c *client) catchUp(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	c.reads.Add(1)
	c.mu.Lock()
	c.looked = time.Now()
	current, err := c.journal.current()
	c.mu.Unlock()
	if err != nil || current {
		return err
	}
	unlock, err := c.lock(ctx, false, false)
	if err != nil {
		return err
	}
	defer unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.refresh()
}

// refresh reads new lines of the journal and wakes the watches.
func (c *client) refresh() error {
	rev, loads := c.journal.table.rev, c.journal.loads
	err := c.journal.refresh()
	if rev != c.journal.table.rev || loads != c.journal.loads {
		c.wake()
	}
	return err
}

func (c *client) wake() {
	close(c.changed)
	c.changed = make(chan struct{})
}

// lock takes the lock file, and gives up with ctx: an error means that nothing was
// written. With yield it gives way to others after each of its writes.
func (c *client) lock(ctx context.Context, exclusive, yields bool) (unlock func(), err error) {
	f, err := os.OpenFile(filepath.Join(c.dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, notSent(err)
	}
	wait := time.Duration(0)
	if yields {
		c.mu.Lock()
		wait = time.Until(c.rested)
		c.mu.Unlock()
	}
	timer := time.NewTimer(max(0, wait))
	defer timer.Stop()
	for step := lockStep; ; step = min(2*step, maxLockStep) {
		select {
		case <-timer.C:
		case <-ctx.Done():
			return nil, notSent(errors.Join(ctx.Err(), f.Close()))
		case <-c.closed:
			return nil, errors.Join(errClosed, f.Close())
		}
		// Of two channels that are ready select takes any.
		if err := ctx.Err(); err != nil {
			return nil, notSent(errors.Join(err, f.Close()))
		}
		locked, err := tryLock(f, exclusive)
		if err != nil {
			return nil, notSent(errors.Join(err, f.Close()))
		}
		if locked {
			break
		}
		timer.Reset(step/2 + rand.N(step))
	}
	return func() {
		if yields {
			c.mu.Lock()
			c.rested = time.Now().Add(rest)
			c.mu.Unlock()
		}
		// Closing a file that was only locked cannot lose anything.
		_ = f.Close()
	}, nil
}

// notSent marks an error of something that was certainly not applied (rule E1).
func notSent(err error) error {
	if driver.NotApplied(err) {
		return err
	}
	return fmt.Errorf("tenure: %w: %w", driver.ErrRetry, err)
}

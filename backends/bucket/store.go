package bucket

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/tenure-go/tenure/backends/kv"
	"github.com/tenure-go/tenure/core/driver"
)

// errClosed does not satisfy driver.NotApplied, because a pending call may have been applied.
var errClosed = errors.New("tenure: the store was closed")

// point is an object of the log, and the revision after it. Its number is 0 before the first one.
type point struct {
	number int64
	nonce  nonce
	rev    kv.Rev
}

// store is a kv.Store on a log of objects.
type store struct {
	objects
	poll   time.Duration
	writer string // random
	logger *slog.Logger
	every  int64 // a checkpoint follows each entry whose number is a multiple
	keep   int64 // number of entries that are never deleted

	life    context.Context
	end     context.CancelFunc
	running sync.WaitGroup // calls and goroutines
	wake    chan struct{}  // has a token if calls may be queued
	turn    chan struct{}  // held by the call that reads the log
	close   func() error   // closes the bucket, if it belongs to the store

	mu       sync.Mutex
	closed   bool
	broken   error // of all later calls
	state    *state
	proven   point // an object whose place in the log is proven
	gen      int   // increases when a checkpoint replaces the state
	changed  chan struct{}
	looked   time.Time // when the log's end was last known
	started  int64     // reads of the log's end
	finished int64     // the last one that succeeded
	polls    int
	beats    []*call
	writes   []*call
	pace     pace
	saving   bool // a checkpoint is being written
	failures int  // checkpoints that failed in succession
}

var _ kv.Store = (*store)(nil)

func (s *store) start() {
	s.life, s.end = context.WithCancel(context.Background())
	s.wake, s.turn = make(chan struct{}, 1), make(chan struct{}, 1)
	s.changed = make(chan struct{})
	s.running.Go(s.write)
}

// scoped returns a context that also ends with the store, and a function that ends the call.
func (s *store) scoped(ctx context.Context) (context.Context, func(), error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, nil, errClosed
	}
	s.running.Add(1)
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(s.life, func() { cancel(errClosed) })
	return ctx, func() {
		stop()
		cancel(nil)
		s.running.Done()
	}, nil
}

// Close ends all calls and goroutines.
func (s *store) Close() error {
	s.mu.Lock()
	closed := s.closed
	s.closed = true
	s.mu.Unlock()
	if closed {
		return nil
	}
	s.end()
	s.running.Wait()
	return s.close()
}

// Apply queues a batch for the next object of the log. See kv.Store.
func (s *store) Apply(ctx context.Context, b *kv.Batch) (*kv.Outcome, error) {
	if ctx.Err() != nil {
		return nil, notSent(driver.Ended(ctx))
	}
	c := &call{batch: b, done: make(chan answer, 1)}
	for _, t := range b.Txns {
		for _, op := range t.Ops {
			c.size += size(op.Key, op.Value)
		}
	}
	if c.size > maxGroup {
		return nil, fmt.Errorf("tenure: %w: %d bytes in one call; an object has at most %d", driver.ErrTooLarge, c.size,
			maxGroup)
	}
	_, done, err := s.scoped(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	s.enqueue(c)
	select {
	case a := <-c.done:
		return a.out, a.err
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case a := <-c.done:
		return a.out, a.err
	default:
	}
	c.gone = true
	if !c.sent {
		return nil, notSent(driver.Ended(ctx))
	}
	return nil, fmt.Errorf("tenure: the outcome is unknown: %w", driver.Ended(ctx))
}

func notSent(err error) error {
	return fmt.Errorf("tenure: %w: nothing was written to the bucket: %w", driver.ErrRetry, err)
}

// Get reads keys. See kv.Store.
func (s *store) Get(ctx context.Context, keys ...string) (page *kv.Page, err error) {
	err = s.read(ctx, func(v *view) { page = &kv.Page{Rev: v.rev, Pairs: v.readAll(keys)} })
	return page, err
}

// Range reads a prefix. See kv.Store.
func (s *store) Range(ctx context.Context, q kv.Range) (page *kv.Page, err error) {
	err = s.read(ctx, func(v *view) { page = v.scan(q) })
	return page, err
}

func (s *store) read(ctx context.Context, fn func(*view)) error {
	ctx, done, err := s.scoped(ctx)
	if err != nil {
		return err
	}
	defer done()
	if err := s.look(ctx, true); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	fn(&view{state: s.state})
	return nil
}

// maxMissed is the number of polls in succession that may fail before a watch ends.
const maxMissed = 3

// Watch reads the log's end once per poll period. See kv.Store.
func (s *store) Watch(ctx context.Context, prefixes []string, after kv.Rev, fn func(kv.Rev, []kv.Change) error) error {
	ctx, done, err := s.scoped(ctx)
	if err != nil {
		return err
	}
	defer done()
	for missed := 0; ; {
		s.mu.Lock()
		// The objects after the proven one may turn out not to belong to the log.
		changed, rev, broken, due := s.changed, s.proven.rev, s.broken, s.poll-time.Since(s.looked)
		changes, err := s.state.since(after, rev, prefixes)
		s.mu.Unlock()
		if broken != nil {
			return broken
		}
		if err != nil {
			return err
		}
		if rev > after {
			if err := fn(rev, changes); err != nil {
				return err
			}
			after = rev
		}
		timer := time.NewTimer(max(due, s.poll/16))
		select {
		case <-changed:
		case <-timer.C:
			if err := s.tick(ctx); err == nil {
				missed = 0
			} else if missed++; missed == maxMissed || ctx.Err() != nil {
				return err
			}
		case <-ctx.Done():
		}
		timer.Stop()
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
}

// tick polls the log, unless another watch or a write has just done so.
func (s *store) tick(ctx context.Context) error {
	s.mu.Lock()
	due := time.Since(s.looked) >= s.poll
	s.polls++
	// A watch without news notices from time to time that the log has gone on without it.
	thorough := s.polls%16 == 0
	s.mu.Unlock()
	if !due {
		return nil
	}
	return s.look(ctx, thorough)
}

func (s *store) notify() {
	close(s.changed)
	s.changed = make(chan struct{})
}

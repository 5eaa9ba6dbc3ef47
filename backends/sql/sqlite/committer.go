package sqlite

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/tenure-go/tenure/backends/sql/internal/engine"
	"github.com/tenure-go/tenure/core/driver"
)

const (
	// groupSize is the maximum number of calls that share one transaction.
	groupSize = 64
	// firstWait and lastWait limit the pauses between attempts to take the write lock while another
	// process holds it. SQLite itself would pause for up to 100 ms, so a busy writer would starve
	// other writers.
	firstWait = 100 * time.Microsecond
	lastWait  = 3 * time.Millisecond
)

// committer runs write transactions on a database file. Its only connection belongs to one
// goroutine. When a call's context ends, the call returns immediately, even though SQLite's commit
// cannot be interrupted.
type committer struct {
	conn  *writer
	check func() error
	done  func(engine.Readers) // called after each commit

	jobs    chan *job
	next    *job // taken from jobs, but unsuitable for the last group
	stop    chan struct{}
	stopped chan struct{}
}

type job struct {
	ctx   context.Context
	fn    func(ctx context.Context, tx *engine.Tx) error
	end   func() // called after the transaction, if fn ran; such a job runs alone
	state atomic.Int32
	reply chan error
}

const (
	waiting int32 = iota
	running
	abandoned
)

func (j *job) start() bool { return j.state.CompareAndSwap(waiting, running) }

func newCommitter(conn *writer, check func() error, done func(engine.Readers)) *committer {
	l := &committer{
		conn: conn, check: check, done: done,
		jobs: make(chan *job), stop: make(chan struct{}), stopped: make(chan struct{}),
	}
	go l.loop()
	return l
}

// close ends the goroutine after the current transaction and then closes the connection.
func (l *committer) close() error {
	close(l.stop)
	<-l.stopped
	return l.conn.close()
}

func (l *committer) do(ctx context.Context, fn func(context.Context, *engine.Tx) error, end func()) error {
	j := &job{ctx: ctx, fn: fn, end: end, reply: make(chan error, 1)}
	select {
	case l.jobs <- j:
	case <-ctx.Done():
		return notSent(ctx)
	case <-l.stop:
		return errClosed
	}
	select {
	case err := <-j.reply:
		return err
	case <-ctx.Done():
	}
	if j.state.CompareAndSwap(waiting, abandoned) {
		return notSent(ctx)
	}
	select {
	case err := <-j.reply:
		return err
	default:
		return fmt.Errorf("tenure: the context ended in the transaction: %w", driver.Ended(ctx))
	}
}

func (l *committer) loop() {
	defer close(l.stopped)
	for {
		j := l.next
		l.next = nil
		if j == nil {
			select {
			case j = <-l.jobs:
			case <-l.stop:
				return
			}
		}
		l.run(j)
	}
}

// run combines a job and the waiting jobs into one transaction. If a job fails, the transaction is
// rolled back, and each job runs in its own transaction.
func (l *committer) run(first *job) {
	if err := l.conn.begin(first.ctx, l.stop); err != nil {
		first.reply <- err
		return
	}
	if !first.start() {
		l.conn.rollback()
		return
	}
	group := []*job{first}
	err := l.apply(first)
	for err == nil && first.end == nil && len(group) < groupSize {
		j := l.waiting()
		if j == nil {
			break
		}
		if j.start() {
			group = append(group, j)
			err = j.fn(context.Background(), l.conn.tx)
		}
	}
	if err == nil || len(group) == 1 {
		err = l.finish(err)
		if first.end != nil {
			first.end()
		}
		for _, j := range group {
			j.reply <- err
		}
		return
	}
	l.conn.rollback()
	for _, j := range group {
		if err = l.conn.begin(j.ctx, l.stop); err == nil {
			err = l.finish(l.apply(j))
		}
		j.reply <- err
	}
}

// The result is a waiting job that can join a group, or nil.
func (l *committer) waiting() *job {
	select {
	case j := <-l.jobs:
		if j.end != nil {
			l.next = j
			return nil
		}
		return j
	default:
		return nil
	}
}

func (l *committer) apply(j *job) error {
	if err := l.check(); err != nil {
		return err
	}
	return j.fn(context.Background(), l.conn.tx)
}

// finish commits the transaction, or rolls it back if err is not nil.
func (l *committer) finish(err error) error {
	if err != nil {
		l.conn.rollback()
		return notApplied(l.conn.path, err)
	}
	if err := l.conn.commit(); err != nil {
		return err
	}
	l.done(l.conn.tx.Woke())
	return nil
}

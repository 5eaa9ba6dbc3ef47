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
	// groupSize is the largest number of calls that share one transaction.
	groupSize = 64
	// firstWait and lastWait limit the pauses between attempts to get the write lock while another
	// process has it. With SQLite's schedule, up to 100 ms, a busy writer starves the others.
	firstWait = 100 * time.Microsecond
	lastWait  = 3 * time.Millisecond
)

// committer is the one writer of a database file in this process: a connection, and the goroutine
// that owns it. A call whose context ends returns immediately, although SQLite cannot be
// interrupted in a commit.
type committer struct {
	conn  *writer
	check func() error
	done  func(engine.Readers) // called after each commit

	jobs    chan *job
	next    *job // taken from jobs, but unfit for the last group
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

// close ends the goroutine after the current transaction, and closes the connection.
func (l *committer) close() error {
	close(l.stop)
	<-l.stopped
	return l.conn.close()
}

// do runs fn in a write transaction.
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

// run makes one transaction of a job and the jobs that wait. If one of them fails, run rolls the
// transaction back, and runs each job in a separate one.
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

// waiting takes a job that can join a group, or returns nil.
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

// finish commits. If there is an error already, it rolls back.
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

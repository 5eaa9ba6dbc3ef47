package sqlite

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/tenure-go/tenure/backends/sql"
	"github.com/tenure-go/tenure/core/driver"
)

const (
	// groupSize is how many waiting calls share one transaction at most.
	groupSize = 64
	// firstWait and lastWait bound the pauses between attempts to get the write
	// lock while another process has it. SQLite's own schedule, up to 100 ms, lets
	// a busy writer starve the others.
	firstWait = 100 * time.Microsecond
	lastWait  = 3 * time.Millisecond
)

// committer is the one writer of a database file in this process: a connection, and
// the goroutine that owns it. A call whose context ends leaves at once, although
// SQLite itself cannot be interrupted in a commit.
type committer struct {
	conn  *writer
	check func() error
	done  func(sql.Readers) // called after each commit

	jobs    chan *job
	next    *job // taken from jobs, and cannot join the group of its time
	stop    chan struct{}
	stopped chan struct{}
}

type job struct {
	ctx   context.Context
	fn    func(ctx context.Context, tx *sql.Tx) error
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

func newCommitter(conn *writer, check func() error, done func(sql.Readers)) *committer {
	l := &committer{
		conn: conn, check: check, done: done,
		jobs: make(chan *job), stop: make(chan struct{}), stopped: make(chan struct{}),
	}
	go l.loop()
	return l
}

// close ends the goroutine after the transaction in progress, and the connection.
func (l *committer) close() error {
	close(l.stop)
	<-l.stopped
	return l.conn.close()
}

// do runs fn in a write transaction.
func (l *committer) do(ctx context.Context, fn func(context.Context, *sql.Tx) error, end func()) error {
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

// run makes one transaction of a job and of those that wait by then. If one of
// them fails, the transaction is rolled back and each gets its own.
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

// waiting takes a job that can join a group, if there is one.
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

// finish commits, or rolls back if there is an error already.
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

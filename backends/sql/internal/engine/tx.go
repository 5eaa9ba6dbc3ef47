package engine

import (
	"context"
	"errors"
	"slices"
)

// Row is one row of a result.
type Row interface {
	Scan(dest ...any) error
}

// Runner runs statements on one connection, in a transaction or, for single reads, without a
// transaction. The arguments in args are in the order of the statement's placeholders. A Runner is
// not safe for concurrent use.
type Runner interface {
	// Exec runs a statement and returns the number of rows that it matched.
	Exec(ctx context.Context, s Statement, args []any) (int64, error)

	// Query calls the callback for every row, and ends early if the callback returns ErrEnough.
	Query(ctx context.Context, s Statement, args []any, each func(Row) error) error

	// Queue queues a statement whose result can wait. With a callback, it is like Query, and
	// otherwise like Exec. Queued statements run in order, either before the next unqueued
	// statement, on Flush, or with the commit.
	Queue(ctx context.Context, s Statement, args []any, each func(Row) error) error

	// Flush runs the queued statements.
	Flush(ctx context.Context) error
}

// ErrEnough makes Runner.Query end early, without an error.
var ErrEnough = errors.New("enough rows")

// Tx runs statements with their parameters. Within a transaction, a Tx is not safe for concurrent
// use.
type Tx struct {
	on    Runner
	stmts *Statements
	woke  Readers
}

// RunOn returns a Tx that runs statements on a runner.
func RunOn(on Runner, stmts *Statements) *Tx { return &Tx{on: on, stmts: stmts} }

// Woke returns the readers that are waiting for the changes made so far.
func (t *Tx) Woke() Readers { return t.woke }

func (t *Tx) exec(ctx context.Context, s Statement, params ...any) (int64, error) {
	t.woke |= s.wakes()
	return t.on.Exec(ctx, s, t.stmts.bind(s, params))
}

// The queued statement returns no rows.
func (t *Tx) write(ctx context.Context, s Statement, params ...any) error {
	t.woke |= s.wakes()
	return t.on.Queue(ctx, s, t.stmts.bind(s, params), nil)
}

func (t *Tx) writeRows(ctx context.Context, s Statement, rows [][]any, params ...any) error {
	return t.queueRows(ctx, s, rows, nil, params...)
}

// queueRows queues a statement for a batch of rows, unless the batch is empty. The callback
// receives the results when the queue runs, and is nil for a statement without results.
func (t *Tx) queueRows(ctx context.Context, s Statement, rows [][]any, each func(Row) error, params ...any) error {
	if len(rows) == 0 {
		return nil
	}
	s = t.stmts.forRows(s, len(rows))
	t.woke |= s.wakes()
	width := t.stmts.compiled[s].rows
	if width == 0 {
		return t.on.Queue(ctx, s, t.stmts.bind(s, append(params, array(rows))), each)
	}
	for part := range slices.Chunk(rows, width) {
		args := slices.Clone(params)
		for i := range width {
			args = append(args, part[min(i, len(part)-1)]...)
		}
		if err := t.on.Queue(ctx, s, t.stmts.bind(s, args), each); err != nil {
			return err
		}
	}
	return nil
}

// If the queued statement returns a row, the readers that wait for its changes are woken.
func (t *Tx) queue(ctx context.Context, s Statement, params []any, each func(Row) error) error {
	return t.on.Queue(ctx, s, t.stmts.bind(s, params), func(r Row) error {
		t.woke |= s.wakes()
		return each(r)
	})
}

// ask queues a statement that reads at most one row into dest. After the queue has run, the
// returned bool reports whether there was a row.
func (t *Tx) ask(ctx context.Context, s Statement, params []any, dest ...any) (*bool, error) {
	found := new(bool)
	err := t.queue(ctx, s, params, func(r Row) error {
		*found = true
		return r.Scan(dest...)
	})
	return found, err
}

func (t *Tx) row(ctx context.Context, s Statement, params []any, dest ...any) (bool, error) {
	found := false
	err := t.rows(ctx, s, params, func(r Row) error {
		found = true
		return r.Scan(dest...)
	})
	return found, err
}

func (t *Tx) rows(ctx context.Context, s Statement, params []any, each func(Row) error) error {
	return t.on.Query(ctx, s, t.stmts.bind(s, params), each)
}

func (t *Tx) flush(ctx context.Context) error { return t.on.Flush(ctx) }

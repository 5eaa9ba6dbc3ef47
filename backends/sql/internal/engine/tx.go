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

// Runner runs statements on one connection, in a transaction or, for single reads, without one.
// args are in the order of the statement's placeholders. One goroutine at a time uses a Runner.
type Runner interface {
	// Exec runs a statement and returns the number of rows it matched.
	Exec(ctx context.Context, s Statement, args []any) (int64, error)

	// Query calls each for every row. If each returns ErrEnough, Query ends early.
	Query(ctx context.Context, s Statement, args []any, each func(Row) error) error

	// Queue is Query, or Exec if each is nil, for a statement whose result can wait. The statement
	// runs, in order, with the next one that is not queued, with Flush, or with the commit.
	Queue(ctx context.Context, s Statement, args []any, each func(Row) error) error

	// Flush runs the queued statements.
	Flush(ctx context.Context) error
}

// ErrEnough ends Runner.Query early, without an error.
var ErrEnough = errors.New("enough rows")

// Tx runs statements by their parameters. Within a transaction, it is not safe for concurrent
// use.
type Tx struct {
	on    Runner
	stmts *Statements
	woke  Readers
}

// RunOn returns a Tx that runs statements on a runner.
func RunOn(on Runner, stmts *Statements) *Tx { return &Tx{on: on, stmts: stmts} }

// Woke returns the readers that wait for the changes of the statements so far.
func (t *Tx) Woke() Readers { return t.woke }

// exec runs a statement and returns the number of rows it matched.
func (t *Tx) exec(ctx context.Context, s Statement, params ...any) (int64, error) {
	t.woke |= s.wakes()
	return t.on.Exec(ctx, s, t.stmts.bind(s, params))
}

// write queues a statement without rows.
func (t *Tx) write(ctx context.Context, s Statement, params ...any) error {
	t.woke |= s.wakes()
	return t.on.Queue(ctx, s, t.stmts.bind(s, params), nil)
}

// writeRows queues a statement without results for the rows of a batch, if there are any.
func (t *Tx) writeRows(ctx context.Context, s Statement, rows [][]any, params ...any) error {
	return t.queueRows(ctx, s, rows, nil, params...)
}

// queueRows queues a statement for the rows of a batch, if there are any. each gets the results
// once the queue has run. It is nil for a statement without results.
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

// queue queues a statement that returns the shards it moved.
func (t *Tx) queue(ctx context.Context, s Statement, params []any, each func(Row) error) error {
	return t.on.Queue(ctx, s, t.stmts.bind(s, params), func(r Row) error {
		t.woke |= s.wakes()
		return each(r)
	})
}

// ask queues a statement that reads at most one row into dest. Once the queue has run, the
// returned bool reports whether there was one.
func (t *Tx) ask(ctx context.Context, s Statement, params []any, dest ...any) (*bool, error) {
	found := new(bool)
	err := t.queue(ctx, s, params, func(r Row) error {
		*found = true
		return r.Scan(dest...)
	})
	return found, err
}

// row reads at most one row into dest and reports whether there was one.
func (t *Tx) row(ctx context.Context, s Statement, params []any, dest ...any) (bool, error) {
	found := false
	err := t.rows(ctx, s, params, func(r Row) error {
		found = true
		return r.Scan(dest...)
	})
	return found, err
}

// rows calls each for every row.
func (t *Tx) rows(ctx context.Context, s Statement, params []any, each func(Row) error) error {
	return t.on.Query(ctx, s, t.stmts.bind(s, params), each)
}

// flush runs the queued statements.
func (t *Tx) flush(ctx context.Context) error { return t.on.Flush(ctx) }

package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/tenure-go/tenure/backends/sql/internal/engine"
	"github.com/tenure-go/tenure/core/driver"
)

// runner sends queued statements together with the next statement that needs an answer, or with
// COMMIT. BEGIN is sent with the first statement. Therefore, a write takes two round trips, however
// many statements it has. A runner is not safe for concurrent use.
type runner struct {
	conn   *pgx.Conn
	stmts  *engine.Statements
	begin  []string // sent before the first statement; none outside a transaction
	wait   *waiting
	begun  bool
	queue  []step
	broken error // a statement's error; the transaction cannot continue
}

type step struct {
	name  string
	text  string
	args  []any
	each  func(engine.Row) error
	count *int64
}

var _ engine.Runner = (*runner)(nil)

func (r *runner) step(s engine.Statement, args []any) step {
	return step{name: s.String(), text: r.stmts.Text(s), args: args}
}

func (r *runner) Exec(ctx context.Context, s engine.Statement, args []any) (int64, error) {
	st := r.step(s, args)
	st.count = new(int64)
	err := r.send(ctx, st)
	return *st.count, err
}

func (r *runner) Query(ctx context.Context, s engine.Statement, args []any, each func(engine.Row) error) error {
	st := r.step(s, args)
	st.each = each
	return r.send(ctx, st)
}

func (r *runner) Queue(_ context.Context, s engine.Statement, args []any, each func(engine.Row) error) error {
	st := r.step(s, args)
	st.each = each
	r.queue = append(r.queue, st)
	return nil
}

func (r *runner) Flush(ctx context.Context) error {
	if len(r.queue) == 0 {
		return nil
	}
	return r.send(ctx)
}

// commit sends the queued statements and COMMIT.
func (r *runner) commit(ctx context.Context) error {
	if !r.begun && len(r.queue) == 0 {
		return nil
	}
	return r.send(ctx, step{name: "commit", text: "COMMIT"})
}

// If ROLLBACK fails, the connection stays in a transaction, and the pool closes it.
func (r *runner) rollback(ctx context.Context) {
	r.queue = nil
	if r.begun && !r.conn.IsClosed() && r.conn.PgConn().TxStatus() != 'I' {
		_, _ = r.conn.Exec(ctx, "ROLLBACK")
	}
}

// send runs the queued statements, and then the last one, in one round trip.
func (r *runner) send(ctx context.Context, last ...step) error {
	if r.broken != nil {
		return r.broken
	}
	steps := append(r.queue, last...)
	r.queue = nil
	if !r.begun {
		for i := len(r.begin) - 1; i >= 0; i-- {
			steps = append([]step{{name: "begin", text: r.begin[i]}}, steps...)
		}
		if r.wait.due() {
			steps = slices.Insert(steps, len(r.begin), r.wait.step())
		}
		r.begun = len(r.begin) > 0
	}
	var batch pgx.Batch
	for _, s := range steps {
		batch.Queue(s.text, s.args...)
	}
	results := r.conn.SendBatch(ctx, &batch)
	var err error
	for i := 0; i < len(steps) && err == nil; i++ {
		err = steps[i].read(results)
	}
	if errors.Is(err, engine.ErrEnough) {
		err = nil
	}
	if closing := results.Close(); err == nil { // Close commits a statement outside a transaction
		err = closing
	}
	if given := takeNotice(r.conn.PgConn()); err == nil {
		err = given
	}
	r.broken = err
	return err
}

func (s *step) read(results pgx.BatchResults) error {
	rows, err := results.Query()
	if err != nil {
		return fmt.Errorf("tenure: statement %q: %w", s.name, err)
	}
	defer rows.Close()
	for rows.Next() && s.each != nil && err == nil {
		err = s.each(rows)
	}
	rows.Close()
	if errors.Is(err, engine.ErrEnough) {
		return err
	}
	if err = errors.Join(err, rows.Err()); err != nil {
		return fmt.Errorf("tenure: statement %q: %w", s.name, err)
	}
	tag := rows.CommandTag()
	if s.count != nil {
		*s.count = tag.RowsAffected()
	}
	if s.text == "COMMIT" && tag.String() != "COMMIT" {
		return fmt.Errorf("tenure: %w: the server rolled the transaction back", driver.ErrRetry)
	}
	return nil
}

package engine

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
)

// preparer is a *sql.DB or a *sql.Conn.
type preparer interface {
	PrepareContext(ctx context.Context, query string) (*sql.Stmt, error)
}

// Prepared is a set of statements, each prepared once on a connection or a pool. It is safe for
// concurrent use.
type Prepared struct {
	on    preparer
	stmts *Statements

	mu    sync.Mutex
	ready [statementCount]*sql.Stmt
}

// Prepare returns the statements. Each statement is prepared on a *sql.DB or *sql.Conn when it is
// first used.
func Prepare(on preparer, stmts *Statements) *Prepared {
	return &Prepared{on: on, stmts: stmts}
}

func (p *Prepared) get(ctx context.Context, s Statement) (*sql.Stmt, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ready[s] == nil {
		stmt, err := p.on.PrepareContext(ctx, p.stmts.Text(s)) //nolint:sqlclosecheck // Close closes it
		if err != nil {
			return nil, fmt.Errorf("tenure: preparing %q: %w", s, err)
		}
		p.ready[s] = stmt
	}
	return p.ready[s], nil
}

// Close closes the statements.
func (p *Prepared) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var errs []error
	for i, stmt := range p.ready {
		if stmt != nil {
			errs = append(errs, stmt.Close())
			p.ready[i] = nil
		}
	}
	return errors.Join(errs...)
}

// NewTx returns a Tx that runs statements on the connection or pool that prepared them or, with a
// non-nil *sql.Tx of the pool, in that transaction.
func NewTx(p *Prepared, in *sql.Tx) *Tx { return RunOn(preparedRunner{p, in}, p.stmts) }

// preparedRunner is a Runner on database/sql. Because database/sql cannot send several statements
// together, preparedRunner runs each statement as soon as it is queued.
type preparedRunner struct {
	p  *Prepared
	in *sql.Tx
}

func (t preparedRunner) stmt(ctx context.Context, s Statement) (*sql.Stmt, error) {
	stmt, err := t.p.get(ctx, s)
	if err == nil && t.in != nil {
		stmt = t.in.StmtContext(ctx, stmt)
	}
	return stmt, err
}

func (t preparedRunner) Exec(ctx context.Context, s Statement, args []any) (int64, error) {
	stmt, err := t.stmt(ctx, s) //nolint:sqlclosecheck // it stays prepared
	if err != nil {
		return 0, err
	}
	res, err := stmt.ExecContext(ctx, args...)
	if err != nil {
		return 0, fmt.Errorf("tenure: statement %q: %w", s, err)
	}
	return res.RowsAffected()
}

func (t preparedRunner) Query(ctx context.Context, s Statement, args []any, each func(Row) error) error {
	stmt, err := t.stmt(ctx, s) //nolint:sqlclosecheck // it stays prepared
	if err != nil {
		return err
	}
	r, err := stmt.QueryContext(ctx, args...)
	if err != nil {
		return fmt.Errorf("tenure: statement %q: %w", s, err)
	}
	for err == nil && r.Next() {
		err = each(r)
	}
	if errors.Is(err, ErrEnough) {
		return r.Close()
	}
	if err = errors.Join(err, r.Err(), r.Close()); err != nil {
		return fmt.Errorf("tenure: statement %q: %w", s, err)
	}
	return nil
}

func (t preparedRunner) Queue(ctx context.Context, s Statement, args []any, each func(Row) error) error {
	if each != nil {
		return t.Query(ctx, s, args, each)
	}
	_, err := t.Exec(ctx, s, args)
	return err
}

func (t preparedRunner) Flush(context.Context) error { return nil }

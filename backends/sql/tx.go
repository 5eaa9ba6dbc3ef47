package sql

import (
	"context"
	stdsql "database/sql"
	"errors"
	"fmt"
	"sync"
)

// Preparer prepares statements: a *sql.DB or a *sql.Conn.
type Preparer interface {
	PrepareContext(ctx context.Context, query string) (*stdsql.Stmt, error)
}

// Prepared holds statements prepared once on a connection or a pool. Safe for
// concurrent use.
type Prepared struct {
	on    Preparer
	stmts *Statements

	mu    sync.Mutex
	ready [statementCount]*stdsql.Stmt
}

// Prepare returns the statements as they are prepared on first use.
func Prepare(on Preparer, stmts *Statements) *Prepared {
	return &Prepared{on: on, stmts: stmts}
}

func (p *Prepared) get(ctx context.Context, s Statement) (*stdsql.Stmt, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ready[s] == nil {
		stmt, err := p.on.PrepareContext(ctx, p.stmts.compiled[s].text)
		if err != nil {
			return nil, fmt.Errorf("tenure: preparing %q: %w", catalogue[s].name, err)
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

// Tx runs statements, in a transaction or, for single reads, without one. Not
// safe for concurrent use within a transaction.
type Tx struct {
	p  *Prepared
	in *stdsql.Tx
}

// NewTx returns a Tx that runs statements where they were prepared, or in the
// transaction in, if it is not nil, of the pool on which they were prepared.
func NewTx(p *Prepared, in *stdsql.Tx) *Tx { return &Tx{p: p, in: in} }

func (t *Tx) stmt(ctx context.Context, s Statement) (*stdsql.Stmt, error) {
	stmt, err := t.p.get(ctx, s)
	if err == nil && t.in != nil {
		stmt = t.in.StmtContext(ctx, stmt)
	}
	return stmt, err
}

// exec runs a statement and returns the number of rows it matched.
func (t *Tx) exec(ctx context.Context, s Statement, params ...any) (int64, error) {
	stmt, err := t.stmt(ctx, s)
	if err != nil {
		return 0, err
	}
	res, err := stmt.ExecContext(ctx, t.p.stmts.compiled[s].bind(params)...)
	if err != nil {
		return 0, fmt.Errorf("tenure: statement %q: %w", catalogue[s].name, err)
	}
	return res.RowsAffected()
}

// row reads at most one row into dest and reports whether there was one.
func (t *Tx) row(ctx context.Context, s Statement, params []any, dest ...any) (bool, error) {
	found := false
	err := t.rows(ctx, s, params, func(r *stdsql.Rows) error {
		found = true
		return r.Scan(dest...)
	})
	return found, err
}

// errEnough ends rows early, without an error.
var errEnough = errors.New("enough rows")

// rows calls each for every row.
func (t *Tx) rows(ctx context.Context, s Statement, params []any, each func(*stdsql.Rows) error) error {
	stmt, err := t.stmt(ctx, s)
	if err != nil {
		return err
	}
	r, err := stmt.QueryContext(ctx, t.p.stmts.compiled[s].bind(params)...)
	if err != nil {
		return fmt.Errorf("tenure: statement %q: %w", catalogue[s].name, err)
	}
	for err == nil && r.Next() {
		err = each(r)
	}
	if errors.Is(err, errEnough) {
		return r.Close()
	}
	if err = errors.Join(err, r.Err(), r.Close()); err != nil {
		return fmt.Errorf("tenure: statement %q: %w", catalogue[s].name, err)
	}
	return nil
}

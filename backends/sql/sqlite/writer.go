package sqlite

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"time"

	"github.com/tenure-go/tenure/backends/sql/internal/engine"
)

// writer is a connection for write transactions. It is not safe for concurrent use.
type writer struct {
	path                  string
	db                    *sql.DB
	stmts                 *engine.Statements
	conn                  *sql.Conn // nil until first used, and after a failed rollback
	beginStmt, commitStmt *sql.Stmt
	count                 *transactions // nil if it counts none
	countStmt             *sql.Stmt
	changes               int64 // rows that the connection had changed when it last counted
	prep                  *engine.Prepared
	tx                    *engine.Tx // the current transaction
}

// begin waits for the write lock. If the context ends or stop is closed first, nothing is applied.
func (w *writer) begin(ctx context.Context, stop <-chan struct{}) error {
	var timer *time.Timer
	for wait := firstWait; ; wait = min(wait*3/2, lastWait) {
		err := w.connect()
		if err == nil {
			_, err = w.beginStmt.ExecContext(context.Background())
		}
		if err == nil {
			w.tx = engine.NewTx(w.prep, nil)
			return nil
		}
		if !busy(err) {
			w.drop()
			return notApplied(w.path, err)
		}
		if timer == nil {
			timer = time.NewTimer(wait)
			defer timer.Stop()
		} else {
			timer.Reset(wait)
		}
		select {
		case <-timer.C:
		case <-ctx.Done():
			return notSent(ctx)
		case <-stop:
			return errClosed
		}
	}
}

func (w *writer) connect() error {
	if w.conn != nil {
		return nil
	}
	conn, err := w.db.Conn(context.Background())
	if err != nil {
		return err
	}
	w.conn = conn
	w.prep = engine.Prepare(conn, w.stmts)
	if w.beginStmt, err = conn.PrepareContext(context.Background(), "BEGIN IMMEDIATE"); err == nil {
		w.commitStmt, err = conn.PrepareContext(context.Background(), "COMMIT")
	}
	if err == nil && w.count != nil {
		w.countStmt, err = conn.PrepareContext(context.Background(), w.count.update)
		w.changes = 0
	}
	if err != nil {
		w.drop()
	}
	return err
}

func (w *writer) commit() error {
	number, err := w.number()
	if err != nil {
		w.rollback()
		return notApplied(w.path, err)
	}
	if _, err := w.commitStmt.ExecContext(context.Background()); err != nil {
		w.rollback()
		return commitFailed(w.path, err)
	}
	if number > 0 {
		w.count.committed(number)
	}
	return nil
}

// number counts the current transaction and returns its number, or 0 if the transaction changed
// nothing or is not counted.
func (w *writer) number() (number int64, err error) {
	if w.count == nil {
		return 0, nil
	}
	var changes int64
	err = w.countStmt.QueryRowContext(context.Background(), w.changes).Scan(&number, &changes)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, nil
	}
	w.changes = changes + 1
	return number, err
}

// If ROLLBACK fails, for example because SQLite has already rolled back, the connection is closed.
func (w *writer) rollback() {
	if _, err := w.conn.ExecContext(context.Background(), "ROLLBACK"); err != nil {
		w.drop()
	}
}

// ErrBadConn keeps the pool from handing the connection out again.
func (w *writer) drop() {
	if w.conn == nil {
		return
	}
	w.closeStmts()
	_ = w.conn.Raw(func(any) error { return sqldriver.ErrBadConn })
	w.conn.Close()
	w.conn = nil
}

func (w *writer) close() error {
	if w.conn != nil {
		w.closeStmts()
		w.conn.Close()
	}
	return w.db.Close()
}

func (w *writer) closeStmts() {
	_ = w.prep.Close() // the statements' connection is closed next
	for _, stmt := range []*sql.Stmt{w.beginStmt, w.commitStmt, w.countStmt} {
		if stmt != nil {
			stmt.Close()
		}
	}
	w.beginStmt, w.commitStmt, w.countStmt = nil, nil, nil
}

package fence

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tenure-go/tenure/core/driver"
)

// ErrNoRow is the error of an update of a row that does not exist.
var ErrNoRow = errors.New("no such row")

// Rows fences one of the application's own tables with two columns in each row. They name the fence
// that wrote the row last. An update needs a token that is not lower. Nothing else is locked, and
// writes to different rows do not wait for each other.
//
// The columns are, for example:
//
//	fence BIGINT NOT NULL DEFAULT 0, fenced_by VARCHAR(255) NOT NULL DEFAULT ''
//
// A write that bypasses Rows, without the same condition, is not protected. A row that the new
// leader has not written yet does not refuse the former leader. If this matters, seal the table
// with SQL.AdmitTx and a mark. Do not change the fields after the first use. Rows is then safe for
// concurrent use.
type Rows struct {
	Dialect driver.Dialect // required
	Table   string         // required; a schema may precede it, with a dot
	Key     string         // column that identifies a row; required
	Fence   string         // column of the token; required
	Holder  string         // column of the session that wrote last; required
	// MayWrite reports whether the leases of a shard may write to the row with a key. If not, Rows
	// refuses them with a *ForeignError. Default: all leases may write, since a key does not name a
	// shard.
	MayWrite func(shard driver.ShardID, key any) bool
	// OnRefused is called for each refusal, like Options.OnRefused.
	OnRefused func(*RefusedError)
}

// Querier is a *sql.DB, *sql.Conn or *sql.Tx.
type Querier interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// Update sets columns and the fence of the row with the given key, in one statement. It does so if
// the row was last written with a lower token, or with f itself. Otherwise, the error is a
// *RefusedError or *ForeignError, whose Resource is table:key, or it matches ErrNoRow or
// driver.ErrRetry. ErrRetry means that the row was inserted while Update ran, and nothing was
// written: try again. If a column's name is not valid, the error matches driver.ErrInvalid. Values
// are passed as bound parameters. If q is a transaction, the caller rolls back after an error. On
// MySQL, Update sets the connection's LAST_INSERT_ID.
func (r *Rows) Update(ctx context.Context, q Querier, f driver.Fence, key any, set map[string]any) error {
	if err := driver.CheckFence(f); err != nil {
		return err
	}
	table, names, err := r.names()
	if err != nil {
		return err
	}
	if r.MayWrite != nil && !r.MayWrite(f.Shard, key) {
		return &ForeignError{Resource: fmt.Sprintf("%s:%v", r.Table, key), Fence: f}
	}
	assign := make([]string, 0, len(set)+2)
	args := make([]any, 0, len(set)+6)
	for _, column := range slices.Sorted(maps.Keys(set)) {
		if column == r.Key || column == r.Fence || column == r.Holder {
			return fmt.Errorf("tenure: %w: column %q is set by Rows itself, or identifies the row", driver.ErrInvalid,
				column)
		}
		name, err := quoted(r.Dialect, "column", column)
		if err != nil {
			return err
		}
		assign, args = append(assign, name+" = ?"), append(args, set[column])
	}
	assign = append(assign, names.fence+" = "+r.token(), names.holder+" = ?")
	token, session := int64(f.Token), string(f.Session)
	args = append(args, token, session, key, token, token, session)
	res, err := q.ExecContext(ctx, bind(r.Dialect, "UPDATE "+table+" SET "+strings.Join(assign, ", ")+
		" WHERE "+names.key+" = ? AND ("+names.fence+" < ? OR ("+names.fence+" = ? AND "+names.holder+" = ?))"),
		args...)
	if err != nil {
		return fmt.Errorf("tenure: updating a row of %s: %w", r.Table, err)
	}
	found, err := res.RowsAffected()
	if err == nil && found == 0 && r.Dialect == driver.MySQL {
		found, err = res.LastInsertId()
	}
	switch {
	case err != nil:
		return fmt.Errorf("tenure: updating a row of %s: %w", r.Table, err)
	case found != 0:
		return nil
	}
	return r.explain(ctx, q, f, key, table, names)
}

// token returns the placeholder for the token's column. MySQL counts the rows that changed, not the
// rows that it found. LAST_INSERT_ID makes MySQL report the token if it found a row.
func (r *Rows) token() string {
	if r.Dialect == driver.MySQL {
		return "LAST_INSERT_ID(?)"
	}
	return "?"
}

type columns struct{ key, fence, holder string }

func (r *Rows) names() (table string, c columns, err error) {
	if err = checkDialect(r.Dialect); err != nil {
		return "", c, err
	}
	if table, err = quoted(r.Dialect, "table", r.Table); err != nil {
		return "", c, err
	}
	for _, it := range []struct {
		name string
		to   *string
	}{{r.Key, &c.key}, {r.Fence, &c.fence}, {r.Holder, &c.holder}} {
		if *it.to, err = quoted(r.Dialect, "column", it.name); err != nil {
			return "", c, err
		}
	}
	return table, c, nil
}

// explain finds out why no row was changed.
func (r *Rows) explain(ctx context.Context, q Querier, f driver.Fence, key any, table string, c columns) error {
	text := "SELECT " + c.fence + ", " + c.holder + " FROM " + table + " WHERE " + c.key + " = ?"
	if r.Dialect == driver.MySQL {
		text += " FOR UPDATE" // otherwise it reads an old snapshot, at REPEATABLE READ
	}
	var token int64
	var session string
	err := q.QueryRowContext(ctx, bind(r.Dialect, text), key).Scan(&token, &session)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return fmt.Errorf("tenure: table %s: %w with that key", r.Table, ErrNoRow)
	case err != nil:
		return fmt.Errorf("tenure: reading why a row of %s was not updated: %w", r.Table, err)
	case token < int64(f.Token), token == int64(f.Token) && session == string(f.Session):
		return fmt.Errorf("tenure: table %s: %w: the row came meanwhile", r.Table, driver.ErrRetry)
	}
	e := &RefusedError{
		Resource: fmt.Sprintf("%s:%v", r.Table, key), Fence: f,
		Current: driver.Fence{Session: driver.SessionID(session), Token: driver.Token(token)},
	}
	if r.OnRefused != nil {
		r.OnRefused(e)
	}
	return e
}

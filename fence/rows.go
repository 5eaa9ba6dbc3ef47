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

// ErrNoRow is the error if the row to update does not exist.
var ErrNoRow = errors.New("no such row")

// Rows fences one of the application's tables. Two additional columns contain the fence that last
// wrote the row. Rows refuses an update with a lower token. Writes to different rows do not wait
// for one another.
//
// The columns are, for example:
//
//	fence BIGINT NOT NULL DEFAULT 0, fenced_by VARCHAR(255) NOT NULL DEFAULT ''
//
// A write that bypasses Rows is protected only if it has the same condition. If the new leader has
// not yet written a row, the row still accepts writes from the former leader. To prevent such
// writes, seal the whole table with SQL.AdmitTx and a mark. Rows is safe for concurrent use if its
// fields do not change after the first use.
type Rows struct {
	Dialect driver.Dialect // required
	Table   string         // required; may begin with a schema and a dot
	Key     string         // column that identifies a row; required
	Fence   string         // column of the fencing token; required
	Holder  string         // column of the session that last wrote the row; required
	// MayWrite reports whether the leases of a shard may write to the row with the given key. If
	// MayWrite returns false, Rows refuses the write with a *ForeignError. By default, all leases
	// may write, because a key does not identify a shard.
	MayWrite func(shard driver.ShardID, key any) bool
	// OnRefused is called for each refusal, like a Mark's Options.OnRefused.
	OnRefused func(*RefusedError)
}

// Querier is a *sql.DB, *sql.Conn or *sql.Tx.
type Querier interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// Update sets columns and the fence of the row with the given key in one statement. Update writes
// the row only if the row was last written with a lower token or with f itself. Otherwise, the
// error matches ErrNoRow or driver.ErrRetry, or is a *RefusedError or *ForeignError whose Resource
// is table:key. ErrRetry means that another writer inserted the row while Update ran. Update then
// wrote nothing, and the caller may try again. If a column's name is not valid, the error matches
// driver.ErrInvalid. Values are passed as bound parameters. If q is a transaction, the caller rolls
// back after an error. On MySQL, Update sets the connection's LAST_INSERT_ID.
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

// MySQL reports how many rows it changed, not how many it found. With LAST_INSERT_ID, MySQL also
// reports the token if it found the row.
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

// explain determines why Update changed no row.
func (r *Rows) explain(ctx context.Context, q Querier, f driver.Fence, key any, table string, c columns) error {
	text := "SELECT " + c.fence + ", " + c.holder + " FROM " + table + " WHERE " + c.key + " = ?"
	if r.Dialect == driver.MySQL {
		text += " FOR UPDATE" // otherwise, at REPEATABLE READ, the query reads an old snapshot
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

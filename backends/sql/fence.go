package sql

import (
	"context"
	stdsql "database/sql"
	"errors"
	"math"

	"github.com/tenure-go/tenure/core/driver"
)

// FenceTx checks a lease inside the caller's own transaction on the data tables'
// database: it locks the shard's row until that transaction ends, so what the
// transaction writes takes effect if and only if the fence is the shard's current
// grant when it commits (F1). Otherwise the error is a *driver.FencedError with
// the owner as it is, and the caller must roll back. ErrRetry means that the
// transaction cannot go on and may be tried again from its start.
func (b *Backend) FenceTx(ctx context.Context, tx *stdsql.Tx, fence driver.Fence) error {
	if err := b.begin(ctx); err != nil {
		return err
	}
	if err := driver.CheckFence(fence); err != nil {
		return err
	}
	if err := b.store.Check(); err != nil {
		return err
	}
	return b.fence(fence, func(s Statement, params []any, dest ...any) (bool, error) {
		err := tx.QueryRowContext(ctx, b.stmts.Text(s), b.stmts.bind(s, params)...).Scan(dest...)
		if errors.Is(err, stdsql.ErrNoRows) {
			return false, nil
		}
		return err == nil, err
	})
}

// FenceOn is [Backend.FenceTx] for a transaction of another client library: row runs
// one of the backend's statements in it, with its arguments in the order of the
// placeholders, reads at most one row into dest, and reports whether there was one. It
// is for dialects, which export a method that takes such a transaction.
func FenceOn(
	ctx context.Context, b *Backend, fence driver.Fence,
	row func(text string, args []any, dest ...any) (bool, error),
) error {
	if err := b.begin(ctx); err != nil {
		return err
	}
	if err := driver.CheckFence(fence); err != nil {
		return err
	}
	return b.fence(fence, func(s Statement, params []any, dest ...any) (bool, error) {
		return row(b.stmts.Text(s), b.stmts.bind(s, params), dest...)
	})
}

func (b *Backend) fence(fence driver.Fence, row func(s Statement, params []any, dest ...any) (bool, error)) error {
	held, err := row(fenceTouch, []any{b.name, string(fence.Shard), string(fence.Session), int64(fence.Token), b.id}, new(int64))
	if err != nil {
		return b.store.Classify(err)
	}
	if held {
		return nil
	}
	refused := &driver.FencedError{Fence: fence}
	var session string
	var token int64
	if _, err := row(ownerRead, []any{b.name, string(fence.Shard)}, &session, &token); err != nil {
		return b.store.Classify(err)
	}
	if current := (driver.Owner{Session: driver.SessionID(session), Token: driver.Token(token)}); checkOwner(current, 0, math.MaxInt64) == "" {
		refused.Current = current
	}
	return refused
}

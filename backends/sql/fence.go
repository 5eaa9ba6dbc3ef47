package sql

import (
	"context"
	stdsql "database/sql"

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
	touch := &b.stmts.compiled[fenceTouch]
	res, err := tx.ExecContext(ctx, touch.text, touch.bind([]any{b.name, string(fence.Shard), string(fence.Session), int64(fence.Token), b.id})...)
	if err != nil {
		return b.store.Classify(err)
	}
	matched, err := res.RowsAffected()
	if err != nil || matched == 1 {
		return err
	}
	refused := &driver.FencedError{Fence: fence}
	read := &b.stmts.compiled[ownerRead]
	err = tx.QueryRowContext(ctx, read.text, read.bind([]any{b.name, string(fence.Shard)})...).
		Scan(&refused.Current.Session, &refused.Current.Token)
	if err != nil && err != stdsql.ErrNoRows {
		return b.store.Classify(err)
	}
	return refused
}

package engine

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"

	"github.com/tenure-go/tenure/core/driver"
)

// FenceTx checks a lease inside the caller's transaction on the database of the data tables.
// FenceTx locks the shard's row until that transaction ends. The transaction's writes take effect
// only if the fence is the shard's current grant when the transaction commits (F1). Otherwise, the
// error is a *driver.FencedError with the current owner, and the caller must roll back. ErrRetry
// means that the transaction cannot continue and may be retried from its start, for example between
// a failover and the session's next heartbeat. ErrStoreChanged means that the store was replaced
// (I1).
//
// In a transaction with one snapshot (REPEATABLE READ, which is MariaDB's default, or
// SERIALIZABLE), call FenceTx before any read. If the lease changed after the snapshot, the
// error is ErrRetry.
func (b *Backend) FenceTx(ctx context.Context, tx *sql.Tx, fence driver.Fence) error {
	return FenceOn(ctx, b, fence, func(text string, args []any, dest ...any) (bool, error) {
		err := tx.QueryRowContext(ctx, text, args...).Scan(dest...)
		if errors.Is(err, sql.ErrNoRows) {
			return false, nil
		}
		return err == nil, err
	})
}

// FenceOn is [Backend.FenceTx] for a transaction from a different client library. The function row
// runs one of the backend's statements in the transaction, with the arguments in the order of the
// placeholders. It reads at most one row into dest, and reports whether there was a row. A dialect
// calls FenceOn in a method that takes the other library's transaction.
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
	if err := b.store.Check(); err != nil {
		return err
	}
	run := func(s Statement, params []any, dest ...any) (bool, error) {
		return row(b.stmts.Text(s), b.stmts.bind(s, params), dest...)
	}
	seen := b.floor.Load() // before the snapshot
	lease := []any{b.name, string(fence.Shard), string(fence.Session), int64(fence.Token)}
	var held bool
	var err error
	if b.stmts.has(fenceChange) {
		_, err = run(fenceChange, lease)
	}
	if err == nil {
		held, err = run(fenceTouch, append(lease, b.id, seen), new(int64))
	}
	if err == nil && !held {
		err = b.whyRefused(fence, seen, run)
	}
	if err == nil || errors.Is(err, driver.ErrFenced) || errors.Is(err, driver.ErrStoreChanged) || errors.Is(err, driver.ErrRetry) {
		return err
	}
	return b.store.Classify(err)
}

// whyRefused returns the error for a lease that is not current.
func (b *Backend) whyRefused(fence driver.Fence, seen int64, run func(s Statement, params []any, dest ...any) (bool, error)) error {
	var ns namespace
	found, err := run(namespaceRead, []any{b.name}, &ns.id, &ns.base, &ns.revision, &ns.trimmed, &ns.recorded, &ns.current)
	if err != nil {
		return err
	}
	refused := &driver.FencedError{Fence: fence}
	var session string
	var token int64
	if _, err := run(ownerRead, []any{b.name, string(fence.Shard)}, &session, &token); err != nil {
		return err
	}
	owner := driver.Owner{Session: driver.SessionID(session), Token: driver.Token(token)}
	if checkOwner(owner, 0, math.MaxInt64) == "" {
		refused.Current = owner
	}
	if !found || ns.id != b.id || ns.forked() {
		return b.compareData(ns, found, seen)
	}
	if owner != (driver.Owner{Session: fence.Session, Token: fence.Token}) {
		return refused
	}
	// The snapshot may be older than the state that this process knows. If an older copy was
	// restored, a heartbeat detects the restore.
	return fmt.Errorf("tenure: namespace %q: %w: the transaction sees it as of token %d, and %d is known: begin again",
		b.name, driver.ErrRetry, ns.floor(), seen)
}

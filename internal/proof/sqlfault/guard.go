package sqlfault

import (
	"context"
	stdsql "database/sql"
	"errors"
	"fmt"

	"github.com/tenure-go/tenure/conformance"
	"github.com/tenure-go/tenure/core/driver"
)

// GuardedTx is an application's transaction that can be fenced.
type GuardedTx struct {
	Fence            func(ctx context.Context, fence driver.Fence) error
	Exec             func(ctx context.Context, statement string) error
	Commit, Rollback func(ctx context.Context) error
}

// Guard returns a transaction fence for the suite. The statement TextsTable creates the table that
// contains the texts of all namespaces.
func (d *Database) Guard(name string, begin func(ctx context.Context, b driver.Backend) (*GuardedTx, error)) conformance.Guard {
	return conformance.Guard{
		Name:  name,
		Waits: true,
		Begin: func(ctx context.Context, b driver.Backend, fence driver.Fence) (func(context.Context, string) error, error) {
			tx, err := begin(ctx, b)
			if err != nil {
				return nil, fmt.Errorf("%w: %w", driver.ErrRetry, err)
			}
			if err := tx.Fence(ctx, fence); err != nil {
				return nil, errors.Join(err, tx.Rollback(context.WithoutCancel(ctx)))
			}
			return func(ctx context.Context, text string) error {
				if err := tx.Exec(ctx, fmt.Sprintf("INSERT INTO texts VALUES ('%s', '%s')", d.Namespace, text)); err != nil {
					return fmt.Errorf("%w: %w", driver.ErrRetry, errors.Join(err, tx.Rollback(context.WithoutCancel(ctx))))
				}
				return tx.Commit(ctx)
			}, nil
		},
		Texts: func(ctx context.Context) ([]string, error) {
			rows, err := d.DB.QueryContext(ctx, fmt.Sprintf("SELECT line FROM texts WHERE namespace = '%s'", d.Namespace))
			if err != nil {
				return nil, err
			}
			defer rows.Close()
			var texts []string
			for rows.Next() {
				var text string
				if err := rows.Scan(&text); err != nil {
					return nil, err
				}
				texts = append(texts, text)
			}
			return texts, rows.Err()
		},
	}
}

// TextsTable is the statement that creates the table for [Database.Guard].
const TextsTable = "CREATE TABLE texts (namespace VARCHAR(200), line VARCHAR(64))"

// FenceTx returns the Guard that uses the backend's method FenceTx. If begin is nil, the Guard uses
// a transaction of d.DB.
func (d *Database) FenceTx(begin func(ctx context.Context) (*stdsql.Tx, error)) conformance.Guard {
	if begin == nil {
		begin = func(ctx context.Context) (*stdsql.Tx, error) { return d.DB.BeginTx(ctx, nil) }
	}
	return d.Guard("FenceTx", func(ctx context.Context, b driver.Backend) (*GuardedTx, error) {
		tx, err := begin(ctx)
		if err != nil {
			return nil, err
		}
		fencer, ok := b.(interface {
			FenceTx(context.Context, *stdsql.Tx, driver.Fence) error
		})
		if !ok {
			return nil, errors.Join(fmt.Errorf("%T has no FenceTx", b), tx.Rollback())
		}
		return &GuardedTx{
			Fence: func(ctx context.Context, fence driver.Fence) error { return fencer.FenceTx(ctx, tx, fence) },
			Exec: func(ctx context.Context, statement string) error {
				_, err := tx.ExecContext(ctx, statement)
				return err
			},
			Commit:   func(context.Context) error { return tx.Commit() },
			Rollback: func(context.Context) error { return tx.Rollback() },
		}, nil
	})
}

// RaiseFloor returns a function that raises a namespace's floor through a backend.
func RaiseFloor(open func(context.Context) (driver.Backend, error)) func(ctx context.Context, above driver.Token) error {
	return func(ctx context.Context, above driver.Token) (err error) {
		b, err := open(ctx)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, b.Close()) }()
		f, ok := b.(interface {
			Floor(context.Context) (driver.Token, error)
			RaiseFloor(ctx context.Context, from, to driver.Token) error
		})
		if !ok {
			return fmt.Errorf("%T has no RaiseFloor", b)
		}
		from, err := f.Floor(ctx)
		if err != nil {
			return err
		}
		return f.RaiseFloor(ctx, from, above)
	}
}

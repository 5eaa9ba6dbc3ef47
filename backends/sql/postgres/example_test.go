package postgres_test

import (
	"context"
	"database/sql"
	"fmt"
	"log"

	"github.com/tenure-go/tenure/backends/sql/postgres"
	"github.com/tenure-go/tenure/core"
)

// The handler pays within a transaction of its own, which the fence refuses once another process leads. It needs a
// server, so it is compiled only; docs/guides/fencing.md has a program with its output, which internal/doctest compares.
func ExampleBackend_FenceTx() {
	ctx := context.Background()
	const dsn = "postgres://tenure_app@db.example/app?sslmode=verify-full"
	b, err := postgres.Open(ctx, dsn, "orders", nil)
	if err != nil {
		log.Fatal(err)
	}
	defer b.Close()
	db, err := sql.Open("pgx", dsn)
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	err = core.RunSingleton(ctx, b, "payments", func(ctx context.Context, lease *core.Lease) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }() // nothing after a commit
		if err := b.FenceTx(ctx, tx, lease.Fence()); err != nil {
			return err // matches core.ErrFenced
		}
		if _, err := tx.ExecContext(ctx, "UPDATE invoices SET paid = true WHERE id = 42"); err != nil {
			return err
		}
		return tx.Commit()
	}, nil)
	fmt.Println("ended:", err)
}
